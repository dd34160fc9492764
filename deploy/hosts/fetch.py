"""`fab fetch`: copy a run's folder from its hosts to this machine. The run itself is not touched.

Each host first says how many bytes it has, and may send at most that many, into a folder of its own (unpack.py). Then
incoming.py merges these folders into the run's folder here, the first host's part first.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..config.inventory import Cluster
from ..core.errors import DeployError
from ..core.fields import digits
from ..core.names import RunId, asked_run, node_of
from ..core.program import FAB
from ..core.results import Results
from ..core.text import amount, several
from ..host import commands, incoming
from ..host.unpack import LeftOut, Unpacker
from ..report.page import run as page
from ..run import folders, record
from ..ssh.session import Session, on_all, open_all
from . import observe

# A running run grows while we copy it: by a tenth and this much.
_GROWS = 64 << 20
# What a fetch leaves free on the disk here.
_LEAST_FREE = 256 << 20
_MOST_KB = 1 << 40


@dataclass(frozen=True)
class _Part:
    """What one host sent: the folder that holds it, the files that were left out, and the fault that cut it short."""

    folder: Path
    left_out: LeftOut
    fault: DeployError | None


def fetch(cluster: Cluster, run_option: str, warn: Callable[[str], None]) -> Path:
    """Copy a run's folder from every host and build its page; returns the local run folder.

    `warn` gets a line for each file that was not taken. Raises DeployError with every host that failed, after it has
    merged what the others sent, and what the failed ones sent before they failed.
    """
    asked_for = asked_run("--run", run_option)
    with open_all(cluster.hosts) as opened, ExitStack() as stages:
        sessions = list(opened.values.values())
        answers = observe.facts(sessions)
        runs = sorted(frozenset[RunId]().union(*(facts.runs for facts in answers.values.values())))
        if asked_for not in runs:  # a host that did not answer may have the run
            _all_faults(opened, answers)
        run = _choose(asked_for, runs)
        run_dir = record.folder_of(folders.RUNS, run)
        run_dir.mkdir(parents=True, exist_ok=True)
        members = [session for session in sessions if run in getattr(answers.values.get(session.host.name), "runs", ())]
        rooms = _rooms(on_all(members, lambda session: _size(session, run)), shutil.disk_usage(run_dir).free)
        nodes = [str(node) for node in record.read_json(run_dir / "record.json").get("nodes", ())]
        ready = {
            session.host.name: (session, stages.enter_context(incoming.stage(run_dir, session.host.name)))
            for session in members
            if session.host.name in rooms.values
        }
        parts = on_all(
            [session for session, _ in ready.values()],
            lambda session: _bring(session, run, ready[session.host.name][1], rooms.values[session.host.name], nodes),
        )
        faults = _merge(parts, run_dir, warn)
        page.write(run_dir)
        _all_faults(opened, answers, rooms, parts, faults)
        return run_dir


def _size(session: Session, run: RunId) -> int:
    """Bytes of the run folder there, with room for its growth meanwhile."""
    done = session.run(commands.size_of(f"{session.home}/runs/{run}"), timeout_s=600)
    size = digits(most=_MOST_KB)(done.out.partition("\t")[0], f"the size of {run}") << 10
    return size + size // 10 + _GROWS


def _rooms(sizes: Results[int], free: int) -> Results[int]:
    """How many bytes each host may send: what it announced, in the order of the hosts, while the disk here has room."""
    left, rooms = free - _LEAST_FREE, dict[str, int | DeployError](sizes.faults)
    for host, size in sizes.values.items():
        if size > left:
            rooms[host] = DeployError(
                f"{host}: its part needs up to {amount(size)}, but only {amount(max(0, left))} are free here",
                f"free some space, then: {FAB} fetch --hosts {host}",
            )
        else:
            rooms[host], left = size, left - size
    return Results({host: rooms[host] for host in sizes})


def _bring(session: Session, run: RunId, folder: Path, room: int, nodes: Sequence[str]) -> _Part:
    """Unpack the host's run folder into `folder`. After a fault, the part has what arrived before it, and the fault."""
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    unpacker = Unpacker(root, room, lambda parts: incoming.ours(parts, nodes))
    stderr, fault = "", None
    try:
        stderr = session.receive(commands.take_home(f"{session.home}/runs/{run}"), unpacker.feed).err
        unpacker.end()
    except DeployError as failed:
        words = stderr.strip().rpartition("\n")[2] or failed.message.removeprefix(f"{session.host.name}: ")
        fault = DeployError(f"{session.host.name}: its copy of {run} is incomplete: {words}", failed.hint)
    finally:
        unpacker.close()
        os.close(root)
    return _Part(folder, unpacker.left_out, fault)


def _merge(parts: Results[_Part], run_dir: Path, warn: Callable[[str], None]) -> Results[None]:
    """Move the parts in, the first host's first; warn about files that were not taken. Returns the hosts' faults."""
    merge, faults = incoming.Merge(run_dir), dict[str, DeployError | None]()
    for host, part in parts.values.items():
        differing = merge.take(host, part.folder, part.left_out)
        for words in part.left_out.named:
            warn(f"{host}: not taken: {words}")
        if more := part.left_out.count - len(part.left_out.named):
            warn(f"{host}: and {several(more, 'other')} not taken")
        if differing:
            where = folders.display_path(run_dir / "hosts" / node_of(host))
            warn(f"{host}: {several(differing, 'file')} differ from another host's file of the same name: see {where}")
        faults[host] = part.fault
    return Results(faults)


def _choose(run: str, runs: Sequence[RunId]) -> RunId:
    if run in runs:
        return RunId(run)
    if not run and len(runs) == 1:
        return runs[0]
    what = f"{run} is not on these hosts" if run else "which run?"
    raise DeployError(f"{what}: they have {', '.join(runs) or 'no runs'}", "name the run: --run ID")


def _all_faults(*results: Results[Any]) -> None:
    faults = {host: fault for result in results for host, fault in result.faults.items()}
    Results({host: faults.get(host, True) for host in results[0]}).all()
