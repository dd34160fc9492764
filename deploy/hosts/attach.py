"""A run that goes on on real hosts, from here: followed to its end, asked to stop, removed. hosts/deploy.py starts it.

The run does not need us. What ends it is asked for: a Ctrl-C, a SIGTERM, `fab stop`. A terminal that goes away, or a
kill -9 of this process, leaves it going, and `attach` finds it by its label.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ..config.inventory import Cluster
from ..core.errors import DETACHED, DONE
from ..core.names import RunId, asked_run
from ..core.results import all_faults
from ..core.text import several
from ..host import lock as host_lock
from ..host.facts import Container
from ..report.console import Console
from ..report.interrupts import Detached, Interrupts
from ..report.page import run as page
from ..report.script_lines import ShownRanks, shown_ranks
from ..run import environment, folders, follow, record
from ..run.outcome import Result
from ..run.progress import State
from ..ssh.session import Session, open_all
from . import container, observe, plan, resume
from . import nodes as host_nodes
from . import options as deploy_options
from .backend import HostsBackend, RunHandle
from .options import Options

_GOES_ON = "the run goes on"


def attach(options: Options, console: Console) -> int:
    """Follow a run that goes on, and hand its secrets to nodes that wait for them; returns its exit code."""
    cluster, ranks = options.load(), shown_ranks(options.rank)
    with (
        Interrupts(console, "looking for the run", _GOES_ON) as interrupts,
        _run_on_hosts(cluster, options.run) as found,
    ):
        sessions, run, nodes = found
        run_dir = record.folder_of(folders.RUNS, run)
        first = min(nodes.values(), key=lambda node: node.place)
        record_there = record.facts(run_dir)
        arguments = tuple(record_there.get("arguments") or first.command.split())
        script = bool(record_there.get("script")) if record_there else first.script
        run_dir.mkdir(record.OWNERS, parents=True, exist_ok=True)
        names = {host: node.node for host, node in sorted(nodes.items(), key=lambda pair: pair[1].place)}
        due = frozenset(name for node in nodes.values() for name in node.secrets)
        secrets = partial(deploy_options.secrets_of, cluster, due) if due else None
        run_handle = RunHandle(run_dir, names, script, arguments, secrets=secrets)
        if not record_there:
            # What a host's label tells is shown, and never run.
            open_record(run_handle, list(names), {"foreign": ["arguments", "script"]})
        lost = first.nodes - len(nodes)
        if lost:
            console.warn(f"{run} has {first.nodes} nodes, {lost} of them not on these hosts")
        interrupts.hold()
        members = [session for session in sessions if session.host.name in names]
        return to_the_end(HostsBackend(members, run_handle, console.warn), console, interrupts, ranks)


def down(options: Options, console: Console) -> int:
    """Remove the containers of all our runs (or of one) from the hosts, and locks of the dead; run folders stay.

    Runs of other users of the hosts are named, and left.
    """
    run = asked_run("--run", options.run)
    with open_all(options.load().hosts) as opened:
        sessions = list(opened.values.values())
        removed = host_nodes.remove(sessions, run)
        swept = host_lock.sweep(sessions)
        for host, gone in removed.values.items():
            lock, containers = swept.values.get(host, ""), several(gone.containers, "container")
            there = [f"removed {containers}"] * bool(gone.containers) + [f"the lock of {lock}, which is gone"] * bool(
                lock
            )
            there += [f"left {other}, which belongs to {user}" for other, user in gone.left]
            console.note(f"{host}: {', '.join(there) or 'nothing was there'}")
            left = [{"run": other, "user": user} for other, user in gone.left]
            console.data({"kind": "removed", "host": host, "containers": gone.containers, "lock": lock, "left": left})
        all_faults(opened, removed, swept)
        return DONE


def to_the_end(backend: HostsBackend, console: Console, interrupts: Interrupts, ranks: ShownRanks) -> int:
    """Follow to the end, clean up there, write the outcome here. Ctrl-C and a closed terminal end only the following.

    The view shows what `ranks` print.
    """
    run, began = backend.run, time.monotonic()
    run_dir, state = run.run_dir, State(tuple(run.nodes.values()), script=run.script)
    follower = follow.Follower(run_dir, from_start=not run.resumed)
    what = container.script_name(run.command) if run.script else environment.recipe_name(run.command)
    hosts = f"--hosts {','.join(run.nodes)} --run {run_dir.name}"
    interrupts.leave_by_ctrl_c(f"fab attach {hosts}", f"fab stop {hosts}")
    try:
        with console.following(state, what, several(len(run.nodes), "host"), ranks) as tell:
            result = follow.follow(backend, follower, state, tell, interrupts.requests)
        backend.clean()
        lost = backend.out_of_sight
    except Detached:
        return DETACHED
    finally:
        backend.close()
    result = resume.hinted(_named(result, run), run_dir, bool(state.checkpoint), lost)
    outcome = record.close(run_dir, result, state, time.monotonic() - began)
    path = page.write(run_dir)
    console.result(
        result, state, outcome, folders.display_path(path), folders.display_path(run_dir), f"fab fetch {hosts}"
    )
    return result.code


def open_record(run: RunHandle, hosts: Sequence[str], again: Mapping[str, Any]) -> dict[str, bytes]:
    """Write this start into the local run folder; `hosts` as the user may name them again, `again` what else to say.

    Returns what record.undo_start needs.
    """
    choice = record.Choice(None, tuple(run.command))
    run_dir, names = run.run_dir, list(run.nodes.values())
    run_dir.mkdir(record.OWNERS, parents=True, exist_ok=True)
    kept = record.open_start(run_dir, choice, record.HOSTS, several(len(hosts), "host"), names, time.time())
    more = {"hosts": list(hosts), "script": run.script, **again}
    record.write_record(run_dir, {**record.facts(run_dir), **more})
    return kept


@contextmanager
def _run_on_hosts(cluster: Cluster, run: str) -> Iterator[tuple[list[Session], RunId, dict[str, Container]]]:
    """Sessions to all hosts, the run that is meant, and its containers by host."""
    asked = asked_run("--run", run)
    with open_all(cluster.hosts) as opened:
        sessions = list(opened.all().values())
        there = observe.containers(sessions).all()
        runs = plan.runs_of(there)
        if asked not in runs:
            plan.refuse_foreign(asked, there)
        found = plan.choose_run(runs, asked)
        yield sessions, found, runs[found]


def _named(result: Result, run: RunHandle) -> Result:
    """With paths of the container told as they are on the hosts: checkpoints on the first, logs on the rank's own."""
    here, first = folders.display_path(run.run_dir), next(iter(run.nodes))
    own = next((host for host, node in run.nodes.items() if node == result.node), first)
    hint, message = (resume.placed(text, run.run_dir.name, first, own) for text in (result.hint, result.message))
    if hint.startswith("logs/"):
        hint = f"{here}/{hint}"
    return replace(result, message=message, hint=hint)
