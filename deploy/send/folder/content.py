"""What a sent folder holds, in a text that is the same on every machine: its digest names the folder on a host. Pure.

A record stands for a path: `KIND SIZE SHA256 PATH`. The kinds are f (file), x (executable file), l (link; the digest is
that of its target) and d (folder, without a digest). trainer/node/work.py makes the same records from what it copies.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass
from functools import cached_property

from .path_entry import TIME, Entry

_LISTED = {"f": "f 644", "x": "f 755", "l": "l a1ff"}
_NOTHING = "-"


@dataclass(frozen=True)
class Content:
    """The records of a folder, each with its path, in any order."""

    records: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """What names this content everywhere."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def text(self) -> bytes:
        """All records: for the digest, and to be remembered."""
        joined = "\0".join(sorted(self.records))
        # The order is that of the bytes: a name that is not text would be elsewhere in the order of texts.
        return joined.encode() if joined.isascii() else b"\0".join(sorted(map(os.fsencode, self.records)))

    @cached_property
    def listing(self) -> str:
        """The digest that a host's look at such a folder gives: names, sizes, times and rights, as rsync compares."""
        # A name may have several lines, and a host sorts lines.
        lines = [line for record in self.records for line in _listed(record).split("\n") if line]
        return hashlib.sha256(b"".join(line + b"\n" for line in sorted(map(os.fsencode, lines)))).hexdigest()

    def since(self, below: Content) -> tuple[set[str], set[str]]:
        """The paths that are new or differ from `below`, and the paths of `below` that must go for that."""
        ours, theirs = frozenset(self.records), frozenset(below.records)
        return {path_of(record) for record in ours - theirs}, {path_of(record) for record in theirs - ours}


def parse(text: bytes) -> Content:
    """The content that `text` stands for."""
    return Content(tuple(filter(None, os.fsdecode(text).split("\0"))))


def path_of(record: str) -> str:
    """The path of a record."""
    return record.split(" ", 3)[3]


def record_of(path: str, entry: Entry, digest: str) -> str:
    """The record of an entry. `digest`: of a file's bytes."""
    if entry.isdir():
        return f"d 0 {_NOTHING} {path}"
    if entry.issym():
        target = os.fsencode(entry.linkname)
        return f"l {len(target)} {hashlib.sha256(target).hexdigest()} {path}"
    return f"{'x' if entry.mode & 0o100 else 'f'} {entry.size} {digest} {path}"


def _listed(record: str) -> str:
    """The line of the script look-folders about a path; nothing for a folder, which needs none."""
    kind, size, _, path = record.split(" ", 3)
    if kind == "d":
        return ""
    return f"{_LISTED[kind]} {size} ./{path}" if kind == "l" else f"{_LISTED[kind]} {size} {TIME}.0000000000 ./{path}"
