"""A folder, or its changes, as a tar stream. A file that changes while it is sent is refused."""

from __future__ import annotations

import os
import stat
import tarfile
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache, cached_property, partial
from itertools import accumulate, chain, pairwise
from pathlib import Path

from ...core import plain_file
from ...core.errors import DeployError
from ..road.cargo import Part, step_of
from . import content
from .content import Entry

_BLOCK, _PAGE = tarfile.BLOCKSIZE, 4096
# The limits of a plain tar header; for more, a second header is needed.
_LONGEST_NAME, _MOST_DIGITS = 100, 8**11


class FolderStream:
    """A tar stream of these entries of `folder`, preceded by the list of paths to remove (`go`).

    Several hosts may read it at once. `places`: where the files are that are not in `folder` at their own path.
    """

    def __init__(
        self, folder: Path, entries: Iterable[Entry], go: Iterable[str] = (), places: Mapping[str, Path] | None = None
    ) -> None:
        self._folder, self._entries, self._gone = folder, sorted(entries, key=lambda entry: entry.path), sorted(go)
        self._places = places or {}
        self._go = b"".join(os.fsencode(path) + b"\0" for path in self._gone)

    @cached_property
    def size(self) -> int:
        """The size of the stream in bytes."""
        return self._starts[-1] + len(_ending())

    @cached_property
    def room(self) -> int:
        """About how many bytes the files take on a disk."""
        return sum(_padded(entry.size, _PAGE) + _PAGE for entry in self._entries)

    @cached_property
    def parts(self) -> Sequence[Part]:
        """The stream in parts, which may be read in any order. Reading raises DeployError if a file has changed since.

        A large file is a part of its own: its pieces are then the same whatever comes before it, and a push that was
        cut can continue with them.
        """
        step, edges = step_of(self.size), {0, self.size}
        for number, entry in enumerate(self._entries, 1):
            if entry.size >= step:
                edges |= {self._starts[number] + len(self._headers[number]), self._starts[number + 1]}
        return [Part(end - at, partial(self._read_from, at), step) for at, end in pairwise(sorted(edges))]

    def read(self, tell: Callable[[int], None]) -> Iterator[bytes]:
        """The stream in chunks of about a megabyte. `tell` gets the bytes so far. Raises as `parts` does."""
        sent = 0
        for piece in chain.from_iterable(part.chunks() for part in self.parts):
            yield piece
            sent += len(piece)
            tell(sent)

    def _read_from(self, start: int, at: int, size: int) -> bytes:
        return self._read(start + at, size)

    @cached_property
    def _headers(self) -> Sequence[bytes]:
        """The header of `gone` and of each entry, made once for all hosts."""
        return [_header("gone", len(self._go)), *(_header_of(entry) for entry in self._entries)]

    @cached_property
    def _starts(self) -> Sequence[int]:
        """The position in the stream at which each header begins, and the position of the end."""
        sizes = (len(self._go), *(entry.size for entry in self._entries))
        blocks = (len(header) + _padded(size) for header, size in zip(self._headers, sizes, strict=True))
        return list(accumulate(blocks, initial=0))

    def _read(self, at: int, size: int) -> bytes:
        pieces, number = list[bytes](), bisect_right(self._starts, at) - 1
        while size:
            piece = self._block(number, at - self._starts[number], size)
            pieces.append(piece)
            at, size, number = at + len(piece), size - len(piece), number + 1
        return b"".join(pieces)

    def _block(self, number: int, at: int, most: int) -> bytes:
        """At most `most` bytes of one header and its content, from position `at` in that block."""
        if number in (0, len(self._headers)):
            gone = self._headers[0] + self._go + bytes(_padded(len(self._go)) - len(self._go))
            return (_ending() if number else gone)[at : at + most]
        header, entry = self._headers[number], self._entries[number - 1]
        start = header[at : at + most]
        if not entry.size or len(start) == most:
            return start
        path = str(self._places.get(entry.path) or f"{self._folder}/{entry.path}")
        return start + _content(path, entry, max(0, at - len(header)), most - len(start))


def _content(path: str, entry: Entry, at: int, most: int) -> bytes:
    """At most `most` bytes of a file, padded to whole blocks. Raises DeployError if the file has changed."""
    size = max(0, min(most, entry.size - at))
    try:
        file = plain_file.open_plain(path)
        try:
            data = os.pread(file, size, at)
            status = os.fstat(file)
        finally:
            os.close(file)
    except OSError as fault:
        raise content.unreadable(Path(path), fault) from fault
    if len(data) < size or content.stamp_of(status) not in entry.stamp:
        raise DeployError(f"{path} has changed while it was sent", "push again when nothing writes there any more")
    return data + bytes(min(most, _padded(entry.size) - at) - size)


def _header_of(entry: Entry) -> bytes:
    """The header of an entry. Most are copies of one header with a new name, size and sum: ten times faster."""
    name = os.fsencode(f"files/{entry.path}")
    if not entry.isreg() or len(name) > _LONGEST_NAME or entry.size >= _MOST_DIGITS:
        return _any_header_of(entry)
    like, base = _like(entry.mode)
    size = b"%011o" % entry.size
    total = b"%06o\0 " % (base + sum(name) + sum(size))
    return name.ljust(_LONGEST_NAME, b"\0") + like[100:124] + size + like[135:148] + total + like[156:]


@cache
def _like(mode: int) -> tuple[bytes, int]:
    """The header of a file with that mode, and the sum of its bytes without its name and size."""
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
    """The entry that proves that the stream is complete, and the end of the tar file."""
    return _header("whole", 0) + bytes(2 * _BLOCK)


def _padded(size: int, block: int = _BLOCK) -> int:
    return -(-size // block) * block
