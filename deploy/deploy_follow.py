"""A run that goes on on real hosts, from here: followed to its end, asked to stop, removed. deploy_launch.py starts it.

The run does not need us. What ends it is asked for: a Ctrl-C, a SIGTERM, `fab stop`. A terminal that goes away, or a
kill -9 of this process, leaves it going, and `attach` finds it by its label.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from deploy import (
    deploy_actions,
    deploy_plan,
    deploy_resume,
    deploy_spec,
    deploy_watch,
    host_lock,
    host_observe,
    launch,
    record,
    spec,
    watch,
)
from deploy.deploy_options import Options
from deploy.ending import Result
from deploy.errors import DONE
from deploy.facts import count
from deploy.host_facts import Container
from deploy.progress import State
from deploy.report import Report
from deploy.results import all_faults
from deploy.session import Session, open_all
from deploy.stopping import Detached, Stopping

GROUND = "hosts"
_GOES_ON = "the run goes on"


@dataclass(frozen=True)
class Followed:
    """A run as its follower needs it: `nodes` by host, what was asked of it, whether an earlier start began it."""

    run_dir: Path
    nodes: Mapping[str, str]
    script: bool
    said: Sequence[str]
    resumed: bool = False


def attach(options: Options, report: Report) -> int:
    """Follow a run that goes on; returns its exit code."""
    with Stopping(report, "looking for the run", _GOES_ON) as stopping, _run_on_hosts(options) as found:
        sessions, run, nodes = found
        run_dir = launch.RUNS / run
        first = min(nodes.values(), key=lambda node: node.place)
        record_there = record.read_json(run_dir / "record.json")
        arguments = tuple(record_there.get("arguments") or first.command.split())
        script = bool(record_there.get("script")) if record_there else first.script
        run_dir.mkdir(parents=True, exist_ok=True)
        names = {host: node.node for host, node in sorted(nodes.items(), key=lambda pair: pair[1].place)}
        followed = Followed(run_dir, names, script, arguments)
        if not record_there:
            open_record(followed, list(names), {})
        lost = first.nodes - len(nodes)
        if lost:
            report.warn(f"{run} has {first.nodes} nodes, {lost} of them not on these hosts")
        stopping.hold()
        return to_the_end(followed, [session for session in sessions if session.host.name in names], report, stopping)


def down(options: Options, report: Report) -> int:
    """Remove the containers of all runs (or of one) from the hosts, and locks of the dead; run folders stay."""
    with open_all(options.load().hosts) as opened:
        sessions = list(opened.values.values())
        removed = deploy_actions.remove(sessions, options.run)
        swept = host_lock.sweep(sessions)
        for host, gone in removed.values.items():
            lock, containers = swept.values.get(host, ""), count(gone, "container")
            there = [f"removed {containers}"] * bool(gone) + [f"the lock of {lock}, which is gone"] * bool(lock)
            report.note(f"{host}: {', '.join(there) or 'nothing was there'}")
            report.data({"kind": "removed", "host": host, "containers": gone, "lock": lock})
        all_faults(opened, removed, swept)
        return DONE


def to_the_end(followed: Followed, sessions: Sequence[Session], report: Report, stopping: Stopping) -> int:
    """Follow to the end, clean up there, write the outcome here. A terminal that goes away ends only the following."""
    state, began = State(tuple(followed.nodes.values()), script=followed.script), time.monotonic()
    run_dir = followed.run_dir
    follower = watch.Follower(run_dir, from_start=not followed.resumed)
    ground = deploy_watch.HostsGround(sessions, followed.nodes, run_dir, followed.script, report.warn)
    what = deploy_spec.script_name(followed.said) if followed.script else spec.recipe_name(followed.said)
    try:
        with report.following(state, what, count(len(followed.nodes), "host")) as tell:
            result = watch.follow(ground, follower, state, tell, stopping.requests)
        for host, fault in deploy_actions.remove(ground.sessions, run_dir.name).faults.items():
            report.warn(f"{host}: {fault.message}; clean up with: fab down --hosts {host} --run {run_dir.name}")
        lost = ground.out_of_sight
        for host in lost:
            report.warn(f"{host}: out of sight; once it is back: fab down --hosts {host} --run {run_dir.name}")
    except Detached:
        return DONE
    finally:
        ground.close()
    result = deploy_resume.hinted(_named(result, followed), run_dir, bool(state.checkpoint), lost)
    outcome = record.close(run_dir, result, state, time.monotonic() - began)
    path = launch.write_page(run_dir)
    report.result(result, state, outcome, launch.shown(path), launch.shown(run_dir))
    return result.code


def open_record(followed: Followed, hosts: Sequence[str], again: Mapping[str, str]) -> dict[str, bytes]:
    """Write this start into the local run folder; `hosts` as the user may name them again, `again` what else to say.

    Returns what record.undo_start needs.
    """
    choice = record.Choice(None, tuple(followed.said))
    run_dir, names = followed.run_dir, list(followed.nodes.values())
    run_dir.mkdir(parents=True, exist_ok=True)
    kept = record.open_start(run_dir, choice, GROUND, count(len(hosts), "host"), names, time.time())
    path = run_dir / "record.json"
    more = {"hosts": list(hosts), "script": followed.script, **again}
    record.write_json(path, {**record.read_json(path), **more})
    return kept


@contextmanager
def _run_on_hosts(options: Options) -> Iterator[tuple[list[Session], str, dict[str, Container]]]:
    """Sessions to all hosts, the run that is meant, and its containers by host."""
    with open_all(options.load().hosts) as opened:
        sessions = list(opened.all().values())
        runs = deploy_plan.runs_of(host_observe.containers(sessions).all())
        run = deploy_plan.choose_run(runs, options.run)
        yield sessions, run, runs[run]


def _named(result: Result, followed: Followed) -> Result:
    """With paths of the container told as they are on the hosts: checkpoints on the first, logs on the rank's own."""
    here, first = launch.shown(followed.run_dir), next(iter(followed.nodes))
    own = next((host for host, node in followed.nodes.items() if node == result.node), first)
    hint = deploy_resume.placed(result.hint, followed.run_dir.name, own)
    if hint.startswith("logs/"):
        hint = f"{here}/{hint}"
    return replace(result, message=deploy_resume.placed(result.message, followed.run_dir.name, first), hint=hint)
