"""What a run on real hosts left or says, brought home: `fab fetch`. The run itself is not touched.

Each host says first how much there is, sends that much at most into a folder of its own (unpack.py), and what arrived
is merged into the run's folder, the first host's part first (incoming.py).
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
from ..core.results import Results
from ..core.text import amount, several
from ..host import commands, incoming
from ..host.unpack import LeftOut, Unpacker
from ..report.page import run as page
from ..run import folders, record
from ..ssh.session import Session, on_all, open_all
from . import observe

# A run that goes on grows meanwhile; a tenth, and this much.
_GROWS = 64 << 20
# What a fetch leaves free on the disk here.
_LEAST_FREE = 256 << 20
_MOST_KB = 1 << 40


@dataclass(frozen=True)
class _Part:
    """What one host sent: where it lies, what of it was left out, and why it is not all, if it is not."""

    folder: Path
    left_out: LeftOut
    fault: DeployError | None


def fetch(cluster: Cluster, asked: str, warn: Callable[[str], None]) -> Path:
    """Bring a run's folder home from every host and build its page; returns the local run folder.

    `warn` is told what was not taken. Raises DeployError with every host that failed; what the others had is home then,
    and what a host had sent before it failed.
    """
    wanted = asked_run("--run", asked)
    with open_all(cluster.hosts) as opened, ExitStack() as stages:
        sessions = list(opened.values.values())
        found = observe.facts(sessions)
        there = sorted(frozenset[RunId]().union(*(facts.runs for facts in found.values.values())))
        if wanted not in there:  # a host that did not answer may have it
            _all_faults(opened, found)
        run = _choose(wanted, there)
        run_dir = record.folder_of(folders.RUNS, run)
        run_dir.mkdir(parents=True, exist_ok=True)
        having = [session for session in sessions if run in getattr(found.values.get(session.host.name), "runs", ())]
        rooms = _rooms(on_all(having, lambda session: _size(session, run)), shutil.disk_usage(run_dir).free)
        nodes = [str(node) for node in record.read_json(run_dir / "record.json").get("nodes", ())]
        ready = {
            session.host.name: (session, stages.enter_context(incoming.stage(run_dir, session.host.name)))
            for session in having
            if session.host.name in rooms.values
        }
        brought = on_all(
            [session for session, _ in ready.values()],
            lambda session: _bring(session, run, ready[session.host.name][1], rooms.values[session.host.name], nodes),
        )
        faults = _merge(brought, run_dir, warn)
        page.write(run_dir)
        _all_faults(opened, found, rooms, brought, faults)
        return run_dir


def _size(session: Session, run: RunId) -> int:
    """Bytes of the run folder there, and what may come on top while it grows."""
    done = session.run(commands.size_of(f"{session.home}/runs/{run}"), timeout_s=600)
    size = digits(most=_MOST_KB)(done.out.partition("\t")[0], f"the size of {run}") << 10
    return size + size // 10 + _GROWS


def _rooms(sizes: Results[int], free: int) -> Results[int]:
    """How much each host may send: what it announced, as long as there is room here, in the order of the hosts."""
    left, rooms = free - _LEAST_FREE, dict[str, int | DeployError](sizes.faults)
    for host, size in sizes.values.items():
        if size > left:
            rooms[host] = DeployError(
                f"{host}: its part needs up to {amount(size)}, but only {amount(max(0, left))} are free here",
                f"free some space, then: fab fetch --hosts {host}",
            )
        else:
            rooms[host], left = size, left - size
    return Results({host: rooms[host] for host in sizes})


def _bring(session: Session, run: RunId, folder: Path, room: int, nodes: Sequence[str]) -> _Part:
    """Unpack the host's run folder into `folder`. What arrived before a fault is kept, with the fault."""
    root = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    unpacker = Unpacker(root, room, lambda parts: incoming.ours(parts, nodes))
    said, fault = "", None
    try:
        said = session.receive(commands.take_home(f"{session.home}/runs/{run}"), unpacker.feed).err
        unpacker.end()
    except DeployError as failed:
        words = said.strip().rpartition("\n")[2] or failed.message.removeprefix(f"{session.host.name}: ")
        fault = DeployError(f"{session.host.name}: its part of {run} did not arrive whole: {words}", failed.hint)
    finally:
        unpacker.close()
        os.close(root)
    return _Part(folder, unpacker.left_out, fault)


def _merge(brought: Results[_Part], run_dir: Path, warn: Callable[[str], None]) -> Results[None]:
    """Move the parts in, the first host's first; tell what was not taken. Returns the hosts' faults on the way."""
    merge, faults = incoming.Merge(run_dir), dict[str, DeployError | None]()
    for host, part in brought.values.items():
        apart = merge.take(host, part.folder, part.left_out)
        for words in part.left_out.named:
            warn(f"{host}: not taken: {words}")
        if more := part.left_out.count - len(part.left_out.named):
            warn(f"{host}: and {several(more, 'other')} not taken")
        if apart:
            where = folders.display_path(run_dir / "hosts" / node_of(host))
            warn(f"{host}: {several(apart, 'file')} differ from another host's file of the same name: see {where}")
        faults[host] = part.fault
    return Results(faults)


def _choose(run: str, there: Sequence[RunId]) -> RunId:
    if run in there:
        return RunId(run)
    if not run and len(there) == 1:
        return there[0]
    what = f"{run} is not on these hosts" if run else "which run?"
    raise DeployError(f"{what}: there are {', '.join(there) or 'none'}", "name it: --run ID")


def _all_faults(*results: Results[Any]) -> None:
    faults = {host: fault for found in results for host, fault in found.faults.items()}
    Results({host: faults.get(host, True) for host in results[0]}).all()
