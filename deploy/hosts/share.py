"""Before a script's run starts again: bring each host the files of the run that only other hosts have.

They come through this machine as they are, and are unpacked by the node that they are for, in its container
(trainer/node/work.py): nothing that a host sends is unpacked on another host itself.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence

from ..core.errors import DeployError
from ..core.names import RunId, node_of
from ..core.text import amount, several
from ..door.session import Session, on_all
from ..host import commands, gather, listing
from ..host.listing import Listing
from ..host.unpack import BLOCK
from ..report.console import Console

_PARTS = ("work/", "home/")
_SHOWN = 3
Missing = dict[tuple[str, str], list[str]]


def share(sessions: Sequence[Session], run: RunId, console: Console) -> None:
    """Copy to each host the files that only others have, or have newer; name those of which each host keeps its own.

    Raises DeployError if a host cannot be asked, or a copy ends early.
    """
    listings = on_all(sessions, lambda session: gather.files(session, run, check=False)).all()
    by_host = {session.host.name: session for session in sessions}
    if own := differing_files(listings):
        more = f" and {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        console.note(f"each host keeps its own {', '.join(own[:_SHOWN])}{more}")
    order = list(by_host)
    with console.fetching(order) as tell:
        for (source, target), paths in missing(listings).items():
            size = sum(listings[source].files[path].size for path in paths)
            what = f"{several(len(paths), 'file')}, {amount(size)}, that it lacks or has an old copy of"
            console.note(f"{target} gets {what}, from {source}")
            # What another host has just brought to the source was not there when it listed its files.
            from_it = listings[source]
            others = [*(from_it.files.keys() - set(paths)), *from_it.folders_left, *map(_archive, order)]
            leave_out = listing.Selection({}, others, {}).input
            most = size + size // 10 + 3 * BLOCK * (len(paths) + 20)
            _copy(by_host[source], by_host[target], run, _archive(source), leave_out, most, tell)


def missing(listings: Mapping[str, Listing]) -> Missing:
    """By source and target host: the files that the target lacks, or has only an old copy of.

    The source is the first host that wrote the file, or has the newest copy. If all hosts have only copies of a file,
    and the host that wrote it is one of them, that host has removed it: no host gets it. A host without any file of its
    own has removed nothing: its disk is new.
    """
    pairs: Missing = {}
    sources, wrote = dict[str, str](), {node_of(host) for host, files in listings.items() if _own(files)}
    for host, files in listings.items():
        for path in sorted(_own(files)):
            sources.setdefault(path, host)
    own = frozenset(sources)
    for host, files in listings.items():
        for path in sorted(_written(files)):
            if path in own or files.origin(path) in wrote:
                continue
            before = sources.setdefault(path, host)
            if files.files[path].time > listings[before].files[path].time:
                sources[path] = host
    for path, source in sources.items():
        for target, files in listings.items():
            if path not in files.files:
                wanted = path not in files.links
            else:
                is_old = files.files[path] != listings[source].files[path]
                wanted = is_old and bool(files.origin(path))
            if wanted:
                pairs.setdefault((source, target), []).append(path)
    return pairs


def differing_files(listings: Mapping[str, Listing]) -> list[str]:
    """The files that hosts have of their own, with different sizes or times."""
    first = dict[str, listing.Stamp]()
    differing = set()
    for files in listings.values():
        for path, stamp in _own(files).items():
            if first.setdefault(path, stamp) != stamp:
                differing.add(path)
    return sorted(differing)


def _written(files: Listing) -> dict[str, listing.Stamp]:
    """The files that the script wrote or changed, but for what can be had again."""
    return {
        path: stamp
        for path, stamp in files.files.items()
        if path.startswith(_PARTS) and files.sent.get(path) != stamp and path not in files.replaceable
    }


def _own(files: Listing) -> dict[str, listing.Stamp]:
    """Return the files that the script wrote on this host, without unchanged copies from other hosts."""
    return {path: stamp for path, stamp in _written(files).items() if not files.origin(path)}


def _archive(host: str) -> str:
    """What a host's files are called, in the run's folder on another one."""
    return f".others-{node_of(host)}.tar"


def _copy(
    source: Session,
    target: Session,
    run: RunId,
    name: str,
    leave_out: bytes,
    most: int,
    tell: Callable[[str, int, int], None],
) -> None:
    """Send what the source gives, at most so many bytes, into a file on the target."""
    pieces: queue.Queue[bytes | None] = queue.Queue(64)
    faults: list[BaseException] = []

    def chunks() -> Iterator[bytes]:
        while (piece := pieces.get()) is not None:
            yield piece

    def send() -> None:
        try:
            target.run(commands.take_in(run, name), input=chunks(), moving=True)
        except BaseException as fault:
            faults.append(fault)

    def put(piece: bytes | None) -> None:
        while sender.is_alive():
            try:
                pieces.put(piece, timeout=0.5)
                return
            except queue.Full:
                continue
        raise DeployError(f"{target.host.name}: it does not accept the rest of {source.host.name}'s files of {run}")

    received = 0

    def take(piece: bytes) -> None:
        nonlocal received
        received += len(piece)
        if received > most:
            raise DeployError(f"{source.host.name}: it sends more of {run} than it listed")
        tell(target.host.name, min(received, most - 1), most)
        put(piece)

    sender = threading.Thread(target=send, daemon=True, name="muster-share")
    sender.start()
    try:
        source.receive(commands.take_home(run), take, leave_out)
    finally:
        if sender.is_alive():
            put(None)
        sender.join()
    if faults:
        raise faults[0]
