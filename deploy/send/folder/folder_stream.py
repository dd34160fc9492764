"""A folder, or what changed in it, as a tar stream for the script receive-folder: read while it is sent."""

from __future__ import annotations

import os
import stat
import tarfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property
from pathlib import Path

from ...core.errors import DeployError
from . import content, left_out
from .content import Entry

_CHUNK = 1 << 20
_BLOCK, _PAGE = tarfile.BLOCKSIZE, 4096
# What a header holds without a second one.
_LONGEST_NAME, _MOST_DIGITS = 100, 8**11


class FolderStream:
    """These entries of `folder`, after the paths that must `go`. Several hosts may read it at once.

    `places`: where those files are that are not in `folder` by their paths.
    """

    def __init__(
        self, folder: Path, entries: Iterable[Entry], go: Iterable[str] = (), places: Mapping[str, Path] | None = None
    ) -> None:
        self._folder, self._entries, self._gone = folder, sorted(entries, key=lambda entry: entry.path), sorted(go)
        self._places = places or {}
        self._go = b"".join(os.fsencode(path) + b"\0" for path in self._gone)

    @cached_property
    def size(self) -> int:
        """Bytes of the stream."""
        sizes = (len(self._go), *(entry.size for entry in self._entries))
        return sum(map(len, self._headers)) + sum(map(_padded, sizes)) + len(_ending())

    @cached_property
    def room(self) -> int:
        """Bytes that it takes on a disk, about."""
        return sum(_padded(entry.size, _PAGE) + _PAGE for entry in self._entries)

    def read(self, tell: Callable[[int], None]) -> Iterator[bytes]:
        """The stream in pieces of about a megabyte; `tell` gets the bytes so far.

        Raises DeployError for a file that has changed since it was looked at.
        """
        sent, pieces, waiting = 0, list[bytes](), 0
        for piece in self._pieces():
            pieces.append(piece)
            waiting += len(piece)
            if waiting >= _CHUNK:
                yield b"".join(pieces)
                sent, pieces, waiting = sent + waiting, [], 0
                tell(sent)
        yield b"".join(pieces)
        tell(sent + waiting)

    @cached_property
    def _headers(self) -> Sequence[bytes]:
        """The header of `gone`, and of each entry: made once for all hosts."""
        return [_header("gone", len(self._go)), *(_header_of(entry) for entry in self._entries)]

    def _pieces(self) -> Iterator[bytes]:
        headers, folder, places = iter(self._headers), str(self._folder), self._places
        yield next(headers)
        yield self._go + bytes(_padded(len(self._go)) - len(self._go))
        for header, entry in zip(headers, self._entries, strict=True):
            yield header
            if entry.size:
                yield from _content(str(places.get(entry.path) or f"{folder}/{entry.path}"), entry)
        yield _ending()


def _content(path: str, entry: Entry) -> Iterator[bytes]:
    """A file as it was when it was looked at, filled up to whole blocks."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
        try:
            left = entry.size
            while left and (piece := os.read(file, min(left, _CHUNK))):
                yield piece
                left -= len(piece)
            status = os.fstat(file)
        finally:
            os.close(file)
    except OSError as fault:
        raise left_out.unreadable(Path(path), fault) from fault
    if left or content.stamp_of(status) not in entry.stamp:
        raise DeployError(f"{path} has changed while it was sent", "push again when nothing writes there")
    yield bytes(_padded(entry.size) - entry.size)


def _header_of(entry: Entry) -> bytes:
    """The header of an entry. For most it is another's with a name, size and sum of its own: a tenth of the time."""
    name = os.fsencode(f"files/{entry.path}")
    if not entry.isreg() or len(name) > _LONGEST_NAME or entry.size >= _MOST_DIGITS:
        return _any_header_of(entry)
    like, base = _like(entry.mode)
    size = b"%011o" % entry.size
    total = b"%06o\0 " % (base + sum(name) + sum(size))
    return name.ljust(_LONGEST_NAME, b"\0") + like[100:124] + size + like[135:148] + total + like[156:]


@cache
def _like(mode: int) -> tuple[bytes, int]:
    """The header of a file with that mode, and the sum of its bytes without name and size."""
    header = _any_header_of(Entry("", stat.S_IFREG, mode=mode))
    bare = bytes(_LONGEST_NAME) + header[100:124] + bytes(11) + header[135:148] + b" " * 8 + header[156:]
    return header, sum(bare)


def _any_header_of(entry: Entry) -> bytes:
    header = entry.header(f"files/{entry.path}")
    header.mode &= 0o755
    return header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _header(name: str, size: int) -> bytes:
    header = tarfile.TarInfo(name)
    header.size = size
    return header.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")


def _ending() -> bytes:
    """The entry that proves that the stream is whole, and the end of a tar file."""
    return _header("whole", 0) + bytes(2 * _BLOCK)


def _padded(size: int, block: int = _BLOCK) -> int:
    return -(-size // block) * block
