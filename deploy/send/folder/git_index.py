"""The files that git has under control, as its index lists them (gitformat-index(5), versions 2 to 4). Pure."""

from __future__ import annotations

import hashlib
import os
import struct
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from ...core import plain_file

# Of the file, of the paths in it (one may be short for many), and their number.
MOST, MOST_NAMES, MOST_ENTRIES = 32 << 20, 24 << 20, 300_000
_HEAD, _ENTRY = struct.Struct(">4sII"), struct.Struct(">10I")
_FLAGS = struct.Struct(">HH")
_GITLINK, _LONGEST = 0o160000, 4096
_SKIPPED, _VALID, _EXTENDED = 0x4000, 0x8000, 0x4000  # of the second word of flags; of the first one


class Tracked(NamedTuple):
    """What the index says of one path: `mode` and object as in a commit, `size` and `modified` (ns) as on the disk.

    `is_trusted`: git was told to believe that the file is as it was.
    """

    mode: int
    object: str
    size: int
    modified: int
    is_trusted: bool

    @property
    def is_repository(self) -> bool:
        """Whether it is the commit of another repository (a submodule)."""
        return self.mode == _GITLINK


@dataclass(frozen=True)
class Index:
    """The paths, each with the place of its entry in `data`, and when the index was written (ns): a file that is not
    older may have changed since."""

    places: dict[str, int]
    data: bytes = b""
    hash_bytes: int = 20
    written: int = 0

    def tracked(self, path: str) -> Tracked:
        """What the index says of one of its paths."""
        at = self.places[path]
        _, _, seconds, more, _, _, mode, _, _, size = _ENTRY.unpack_from(self.data, at)
        at += _ENTRY.size + self.hash_bytes
        first, second = _FLAGS.unpack_from(self.data, at)
        is_trusted = bool(first & _VALID or (first & _EXTENDED and second & _SKIPPED))
        name = self.data[at - self.hash_bytes : at].hex()
        return Tracked(mode, name, size, seconds * 10**9 + more, is_trusted)


def read(path: Path, hash_bytes: int, most: int = MOST) -> Index:
    """The index in that file; empty if there is none. Raises OSError, and ValueError for what is no index of git's."""
    try:
        data, written = plain_file.read(path, most), os.lstat(path).st_mtime_ns
    except FileNotFoundError:
        return Index({})
    try:
        return Index(dict(_entries(data, hash_bytes)), data, hash_bytes, written)
    except (struct.error, IndexError) as fault:
        raise ValueError("it is cut") from fault


def name_of(pieces: Iterable[bytes], size: int, hash_bytes: int) -> str:
    """The name that git gives to a file's content."""
    made = hashlib.sha256() if hash_bytes == 32 else hashlib.sha1(usedforsecurity=False)
    made.update(b"blob %d\0" % size)
    for piece in pieces:
        made.update(piece)
    return made.hexdigest()


def _entries(data: bytes, hash_bytes: int) -> Iterator[tuple[str, int]]:
    magic, version, count = _HEAD.unpack_from(data)
    if magic != b"DIRC" or version not in (2, 3, 4) or count > MOST_ENTRIES:
        raise ValueError("it has another form, or very many entries")
    at, before, letters = _HEAD.size, b"", 0
    for _ in range(count):
        start = at
        at += _ENTRY.size + hash_bytes
        at += 4 if _FLAGS.unpack_from(data, at)[0] & _EXTENDED else 2
        strip = 0
        if version == 4:
            strip, at = _number(data, at)
        end = data.index(b"\0", at)
        path = (before[: len(before) - strip] if version == 4 else b"") + data[at:end]
        at = end + 1 if version == 4 else start + (end - start + 8) // 8 * 8
        before, letters = path, letters + len(path)
        if letters > MOST_NAMES:
            raise ValueError("its paths are very long")
        yield _plain(path), start


def _number(data: bytes, at: int) -> tuple[int, int]:
    """A number of variable length, as in packs of git (offset encoding), and what follows it."""
    value = data[at] & 127
    while data[at] & 128:
        at += 1
        value = (value + 1 << 7) + (data[at] & 127)
        if value > MOST:
            raise ValueError("a path is too long")
    return value, at + 1


def _plain(path: bytes) -> str:
    """The path as text. Raises ValueError for one that git would refuse: it leads out of the folder."""
    text = os.fsdecode(path)
    # The plain words first: an index may have very many paths.
    if path[:1] in b"./" or b"/." in path or b"//" in path or len(path) > _LONGEST:
        parts = text.lower().removesuffix("/").split("/")
        if len(path) > _LONGEST or not {"", ".", "..", ".git"}.isdisjoint(parts):
            raise ValueError(f"no path of a folder: {text[:100]!r}")
    return text
