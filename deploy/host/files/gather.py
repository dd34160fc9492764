"""Copy a run's folder from hosts into the local one: list, choose what is new (incoming.py), receive, merge.

Each host first lists its files. It is then asked for the files that are not here yet, and may send at most as many
bytes as these have, into a separate folder for each host (unpack.py). Then incoming.py merges these folders into the
local run folder, the first host's part first. If the copy is cut off, the files that arrived whole are kept, and the
next fetch continues from there.
"""

from __future__ import annotations

import glob
import os
import shlex
import shutil
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from ...core.errors import DeployError
from ...core.names import RunId, node_of
from ...core.results import Results
from ...core.text import amount, several
from ...door.session import CommandFailed, Session, among, on_all
from ...job.option_words import command_of
from ...job.options import FLAG
from ...run.files import folders, record
from .. import commands
from . import incoming, listing, unpack
from .listing import Listing, Selection
from .unpack import BLOCK, LeftOut, Unpacker

# The most bytes in the list of a run's files: about 3 million files.
MOST_LIST = 256 << 20
# A running run grows while it is copied: by a tenth, plus this many bytes.
_GROWS = 64 << 20
# How many bytes a fetch leaves free on the local disk.
_LEAST_FREE = 256 << 20
Tell = Callable[[str, int, int], None]


class Listener(Protocol):
    """Receives reports of the progress: the console."""

    def note(self, text: str) -> None:
        """Report what happens."""

    def warn(self, text: str) -> None:
        """Report what is wrong."""

    def waiting(self, what: str) -> AbstractContextManager[Callable[[str], None]]:
        """Show a step whose progress cannot be counted; yields a function that takes the name of the current step."""

    def transferring(self, hosts: Sequence[str], then: str) -> AbstractContextManager[Tell]:
        """Show a transfer; yields a function that takes a host, its bytes so far, the total. `then`: the next step."""


@dataclass(frozen=True)
class _Order:
    """What one host is asked for, its local folder, and the files that an interrupted fetch completed there."""

    selection: Selection
    folder: Path
    staged: Mapping[str, listing.Stamp]
    left: Mapping[str, int]
    links: Sequence[str] = ()

    @property
    def size(self) -> int:
        """The bytes that the host is expected to send, headers included."""
        return (self.selection.size + BLOCK * len(self.selection.wanted)) * 11 // 10

    @property
    def room(self) -> int:
        """The most bytes that the host may send."""
        return self.size + _GROWS

    @property
    def members(self) -> int:
        """The most files and folders that the host may send."""
        return unpack.MOST_MEMBERS + 2 * len(self.selection.wanted)


@dataclass(frozen=True)
class _Part:
    """What one host sent: the files that were left out, and the fault that interrupted it."""

    left_out: LeftOut
    fault: DeployError | None


def gather(
    members: Sequence[Session], run: RunId, only: Sequence[str], run_dir: Path, listener: Listener
) -> tuple[Results[_Order], Results[_Part], Results[None]]:
    """Copy the run's folder, or what matches `only`, from each host into `run_dir`; returns each step's faults."""
    record.make_runs(run_dir.parent)
    run_dir.mkdir(record.OWNERS, exist_ok=True)
    with incoming.lock_fetch(run_dir):
        fetched = incoming.Fetched(run_dir)
        with listener.waiting("fetch") as say:
            say("waiting for the hosts to list their files")
            listings = on_all(members, lambda session: (session.name, files(session, run)))
            say("checking which files are here already")
            answered = {node_of(host) for host in listings.values}
            orders = listings.then(lambda host_files: _order(*host_files, only, run_dir, fetched, answered))
        ready = _refuse_full(orders, shutil.disk_usage(run_dir).free)
        nodes = record.facts(run_dir).get("nodes", ())
        senders = among(members, ready.values)
        with listener.transferring([session.name for session in senders], then="") as tell:
            parts = on_all(senders, lambda session: _bring(session, run, ready.values[session.name], nodes, tell))
        with listener.waiting("fetch") as say:
            say(f"copying the files into {folders.display_path(run_dir)}")
            return ready, parts, _merge(parts, ready.values, run_dir, fetched, listener)


def files(session: Session, run: RunId) -> Listing:
    """The files of a run on one host. Raises DeployError."""
    answer, argv = bytearray(), commands.script("list-files", run, str(commands.MANIFEST))

    def take(data: bytes) -> None:
        answer.extend(data)
        if len(answer) > MOST_LIST:
            raise DeployError(
                f"its list of files is longer than {amount(MOST_LIST)}", "pack the files there, for example with tar"
            )

    done = session.receive(argv, take)
    if done.code:
        raise CommandFailed(session.name, argv, done)
    return listing.parse(answer.decode(errors="replace"))


def _order(
    host: str, files: Listing, only: Sequence[str], run_dir: Path, fetched: incoming.Fetched, answered: Container[str]
) -> _Order:
    """Choose which of these files a host is asked for. `answered`: the nodes of all hosts that listed their files."""
    folder = incoming.stage(run_dir, host)
    selection = listing.select(files, only, lambda path, stamp: fetched.has_arrived(host, path, stamp), answered)
    staged = incoming.keep_whole(folder, selection.wanted)
    links = [path for path in files.links if (listing.matches(path, only) if only else path not in files.replaceable)]
    return _Order(selection.without(staged), folder, staged, {} if only else files.folders_left, links)


def _refuse_full(orders: Results[_Order], free: int) -> Results[_Order]:
    """The orders that fit on the local disk, in the order of the hosts."""
    left, ready = free - _LEAST_FREE, dict[str, _Order | DeployError](orders.faults)
    for host, order in orders.values.items():
        if order.size and order.room > left:
            if not order.staged:
                incoming.unstage(order.folder)
            ready[host] = DeployError(
                f"{host}: its files need up to {amount(order.room)}, but only {amount(max(0, left))} are free here",
                f"free some space, then: {command_of('fetch', hosts=host)}",
            )
        else:
            # Only the expected size counts here: not every one of many hosts' folders grows by the full margin.
            ready[host], left = order, left - order.size
    return Results({host: ready[host] for host in orders})


def _bring(session: Session, run: RunId, order: _Order, nodes: Sequence[str], tell: Tell) -> _Part:
    """Unpack what the host sends into its folder. After a fault, the files that arrived completely are kept."""
    if not order.selection.wanted:
        left_out = LeftOut()
        for path in order.links:
            left_out.add(f"./{path}", "is a link")
        return _Part(left_out, None)
    host, total, received = session.name, order.selection.size, 0
    root = os.open(order.folder, os.O_RDONLY | os.O_DIRECTORY)
    unpacker = Unpacker(root, order.room, lambda parts: incoming.why_refused(parts, nodes), order.members)

    def take(data: bytes) -> None:
        nonlocal received
        received += len(data)
        tell(host, min(received, total - 1), total)
        unpacker.feed(data)

    stderr, fault = "", None
    try:
        stderr = session.receive(commands.script("send-run-folder", run), take, order.selection.input).err
        unpacker.end()
        tell(host, total, total)
    except DeployError as failed:
        words = stderr.strip().rpartition("\n")[2] or failed.message.removeprefix(f"{host}: ")
        hint = failed.hint or f"to continue: {command_of('fetch', hosts=host, run=run)}"
        fault = DeployError(f"{host}: its copy of {run} is incomplete: {words}", hint)
    finally:
        unpacker.close()
        os.close(root)
    return _Part(unpacker.left_out, fault)


def _merge(
    parts: Results[_Part], orders: Mapping[str, _Order], run_dir: Path, fetched: incoming.Fetched, listener: Listener
) -> Results[None]:
    """Move the parts in, the first host's first; report the files that were left out. Returns the hosts' faults."""
    merge, faults = incoming.Merge(run_dir, fetched), dict[str, DeployError | None]()
    for host, part in parts.values.items():
        order = orders[host]
        came = incoming.staged_files(order.folder)
        known = {**order.selection.wanted, **order.staged}
        differing = merge.take(host, order.folder, part.left_out)
        fetched.add(host, {path: known[path] for path in came if path in known})
        fetched.write()
        incoming.unstage(order.folder)
        _tell(host, part, order, came, listener)
        if differing:
            where = folders.display_path(run_dir / "hosts" / node_of(host))
            differ = f"{several(differing, 'file')} {'differs' if differing == 1 else 'differ'}"
            listener.warn(f"{host}: {differ} from another host's file with the same name: see {where}")
        faults[host] = part.fault
    return Results(faults)


def _tell(host: str, part: _Part, order: _Order, came: frozenset[str], listener: Listener) -> None:
    """Report what came from a host, what was here already, and what was left out."""
    here = len(order.selection.home) + len(order.staged)
    words = [f"{several(len(came - order.staged.keys()), 'file')} came"]
    words += [f"{here} were here already"] if here else []
    # Empty files, such as locks, are not worth reporting.
    if left := sorted(filter(order.left.get, order.left), key=lambda folder: -order.left[folder]):
        size, only = amount(sum(order.left.values())), shlex.quote(glob.escape(left[0]))
        words.append(
            f"{size} that can be downloaded again stays there ({', '.join(left[:3])}): {FLAG.only} {only} copies it"
        )
    listener.note(f"{host}: {'; '.join(words)}")
    for name in part.left_out.named:
        listener.warn(f"{host}: not copied: {name}")
    if more := part.left_out.count - len(part.left_out.named):
        listener.warn(f"{host}: and {several(more, 'other')} not copied")
    gone = sorted(order.selection.wanted.keys() - came) if not (part.fault or part.left_out.count) else []
    if gone:
        listener.warn(
            f"{host}: {several(len(gone), 'file')} did not arrive, the first is {gone[0]!r}: "
            "it was removed, or is not readable there"
        )
