"""The client's side of a run on real hosts: follow it to its end.

hosts/start/deploy.py starts the run. From then on the run does not need this process. Only a request ends it: Ctrl-C,
SIGTERM or `muster stop`. If the terminal closes, or somebody kills this process with SIGKILL, the run continues, and
`attach` finds it by its label.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from ...core.errors import DETACHED
from ...core.names import RunId, node_of
from ...core.results import all_faults
from ...core.text import several
from ...door.session import among, open_all
from ...job.load import job_of, known_cluster, read_run
from ...job.options import Options
from ...job.secrets import secrets_of
from ...report import ending
from ...report.console import Console
from ...report.interrupts import CONTINUES, Detached, Interrupts
from ...report.script_lines import ShownRanks, shown_ranks
from ...run import environment, follow
from ...run.events import Event
from ...run.files import locks, record, timeline
from ...run.follower import Follower
from ...run.lost_host import patience_s
from ...run.outcome import may_continue
from ...run.progress import State
from ...run.state import times
from ...run.state.story import CatchingUp, Happening
from ...send.folder import named_paths
from ...send.folder.credentials import SendChoice
from .. import nodes as host_nodes
from .. import which_run
from ..backend import HostsBackend, Onlooker, RunHandle
from ..start import observe, resume
from . import ended


def attach(options: Options, console: Console, only_looks: bool = False) -> int:
    """Follow a run, and hand over secrets to nodes that wait for them. Returns its exit code, even if it has ended.

    `only_looks`: hand over no secrets, and neither stop nor remove anything.
    """
    cluster, ranks = known_cluster(options), shown_ranks(options.rank)
    cluster = replace(cluster, job=job_of(options, cluster.job))
    with (
        Interrupts(console, "looking for the run", CONTINUES) as interrupts,
        open_all(cluster.hosts) as opened,
    ):
        sessions, wanted = list(opened.values.values()), read_run(options.run)
        answers = observe.containers(sessions)
        runs, away = which_run.runs_of(answers.values), [*opened.faults, *answers.faults]
        meant = wanted or (next(iter(runs)) if len(runs) == 1 else "")
        # A host that does not answer is an error, unless the run can continue without some of its nodes.
        if not any(node.least for node in runs.get(RunId(meant), {}).values()):
            all_faults(opened, answers)
        try:
            run, nodes = ended.find_run(wanted, opened, answers)
        except ended.RunEnded as end:
            return ended.show(end, sessions, console)
        run_dir = record.folder_of(run)
        first = min(nodes.values(), key=lambda node: node.place)
        known = record.facts(run_dir)
        arguments = tuple(known.get("arguments") or first.command.split())
        script = bool(known.get("script")) if known else first.script
        names = {host: node.node for host, node in sorted(nodes.items(), key=lambda pair: pair[1].place)}
        if away:
            names = {host.name: node_of(host.name) for host in cluster.hosts if host.name in {*names, *away}}
        due = frozenset(name for node in nodes.values() for name in node.secrets if not only_looks)
        recorded = None if options.wait_lost else known.get("wait_lost_s")
        run_handle = RunHandle(
            run_dir,
            names,
            script,
            arguments,
            secrets=partial(secrets_of, cluster, due) if due else None,
            since=times.started(known),
            wait_lost_s=patience_s(recorded, cluster.job.wait_lost),
            least=first.least,
            away=[host for host in cluster.hosts if host.name in away],
            roles=known.get("role_of") or {},
        )
        if not known:
            # These words come from a label on a host. Muster shows them and never runs them.
            hosts = [host.destination for host in cluster.hosts if host.name in names]
            open_record(run_handle, hosts, {"foreign": ["arguments", "script"]}, not only_looks)
        lost = first.nodes - len(names)
        if lost > 0:  # a host may have joined
            console.warn(f"{run} has {first.nodes} nodes; {lost} of them run on other hosts")
        interrupts.hold()
        backend = (Onlooker if only_looks else HostsBackend)(among(sessions, names), run_handle, console.warn)
        story = record.story_of(run_dir) if known else []
        return follow_until_done(backend, console, interrupts, ranks, resume.sent(run_dir, cluster.job), story)


def follow_until_done(
    backend: HostsBackend,
    console: Console,
    interrupts: Interrupts,
    ranks: ShownRanks,
    sent: tuple[Path, SendChoice] | None = None,
    story: Sequence[Happening] | None = None,
) -> int:
    """Follow the run to its end, remove its containers, write the outcome here. The view shows what `ranks` print.

    `sent`: the folder that this command sent, and the choice of its files. `story`: for a follower that starts later,
    the story that earlier followers recorded. Ctrl-C or a closed terminal ends only the following; the run continues.
    """
    run = backend.run
    names = tuple(run.nodes.values())
    run_dir, state = run.run_dir, State(names, run.wait_lost_s, run.script, run.least, run.since, run.roles)
    if story is not None:
        state.story.recall(story)
    lock = locks.hold_followed(run_dir)
    here = CatchingUp(state.story, time.time())
    follower = Follower(run_dir, from_start=not run.resumed, of_hosts=True)
    what = environment.what_runs(run.command, run.script)

    def left() -> str:
        why = state.ranks.waiting
        return f"the run waits on its hosts ({why}), and will start there" if why else CONTINUES

    interrupts.leave_by_ctrl_c(f"muster attach {backend.run_options}", f"muster stop {backend.run_options}", left)
    try:
        with console.following(state, what, several(len(run.nodes), "host"), ranks) as tell:

            def tell_and_keep(events: list[Event]) -> None:
                nonlocal lock
                for part in here.parts(events, time.time()):
                    tell(part)
                lock = lock or locks.hold_followed(run_dir)  # an earlier follower may have left
                timeline.keep(run_dir, state.story, lock is not None)

            result = follow.follow(backend, follower, state, tell_and_keep, interrupts.requests, interrupts.take_passed)
            tell(here.rest())
        remains, lost, node_paths = backend.remove(), backend.silent_hosts, dict[str, frozenset[str]]()
        if result.verdict == "failed":  # which of the paths in the result's message each host has
            named = named_paths.all_of(result.message, run_dir.name)
            by_host = host_nodes.existing_paths(backend.sessions, run_dir.name, named)
            node_paths = {run.nodes[host]: paths for host, paths in by_host.items() if host in run.nodes}
    except Detached:
        interrupts.tell_way_back()
        return DETACHED
    finally:
        backend.close()
        if lock:
            lock.release()
    copied = next((host for host, node in run.nodes.items() if node == state.nodes.copied), "")
    result = resume.with_resume_hint(
        resume.result_on_hosts(result, run_dir.name, next(iter(run.nodes)), run.nodes, run.least > 0),
        run_dir,
        may_continue(state),
        backend.typed(lost),
        copied not in ("", *lost),
    )
    fetch = f"muster fetch {backend.run_options}"
    outcome = ending.write(run_dir, result, state, console, fetch, sent, node_paths)
    code = ending.show(run_dir, outcome, console, fetch)
    for words in remains:  # first what happened, then what is left to do
        console.warn(words)
    return code


def open_record(
    run: RunHandle, hosts: Sequence[str], resume_fields: Mapping[str, Any], is_latest: bool = True
) -> dict[str, bytes]:
    """Write this start into the local run folder.

    `hosts`: what a user can pass to --hosts again. `resume_fields`: more fields for the record, made by
    resume.resume_fields. `is_latest`: as in record.open_start. Returns what record.undo_start needs.
    """
    choice = record.Choice(None, tuple(run.command))
    run_dir, names = run.run_dir, list(run.nodes.values())
    record.make_runs(run_dir.parent)
    run_dir.mkdir(record.OWNERS, exist_ok=True)
    fields = {"hosts": list(hosts), "script": run.script, **resume_fields}
    why = several(len(hosts), "host")
    return record.open_start(run_dir, choice, record.HOSTS, why, names, time.time(), fields, is_latest)
