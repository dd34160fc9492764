"""The content of a run's folder on a host, and the part of it that `muster fetch` asks for. Pure.

A host's list only decides what we ask for: unpack.py and incoming.py check what the host then sends.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Callable, Container, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cached_property
from typing import Any

from ...core.errors import BadAnswer, DeployError
from ...core.fields import document
from ...core.text import parents
from . import replaceable
from .unpack import parts_of

# The agent's records of what was sent and copied, lock files, hidden files in nodes/, and the marks and messages of
# submitting or stopping a job; they are not results of the run.
_HOUSEKEEPING = re.compile(
    r"(?:sent|copies)\.json|\.(?:sent|scalars)\.lock|nodes/\..*|\.(?:submit\.lock|submitting|sbatch\.words|stop)"
)
# Limits for sent.json, in characters and JSON parts. It has one row for each file: enough for a folder of 150,000
# files.
_MOST_ROWS, _MOST_PARTS = 17 << 20, 800_000
_LINE = re.compile(r"([0-9a-f]{1,8}) ([0-9]{1,18}) (-?[0-9]{1,12})(?:\.[0-9]+)? \./(.+)")


@dataclass(frozen=True)
class Stamp:
    """A file's size in bytes and the second of its last change. The same stamp means the same content."""

    size: int
    time: int


@dataclass(frozen=True)
class Listing:
    """A run's folder on a host: its files by path, its links, and the stamps that its sent files had.

    `copies`: for files that came from another host, their stamps and that host's node. `pipes`: the agent's own pipes.
    `replaceable`: the files and links that can be downloaded or made again, with their sizes in bytes.
    """

    files: Mapping[str, Stamp]
    links: Sequence[str] = ()
    replaceable: Mapping[str, int] = field(default_factory=dict)
    sent: Mapping[str, Stamp] = field(default_factory=dict)
    copies: Mapping[str, tuple[Stamp, str]] = field(default_factory=dict)
    pipes: Sequence[str] = ()

    def origin(self, path: str) -> str:
        """The node of the host from which this file came, if it is unchanged since; empty for this host's own file."""
        stamp, node = self.copies.get(path, (None, ""))
        return node if stamp == self.files[path] else ""

    @cached_property
    def folders_left(self) -> Mapping[str, int]:
        """The highest folders that hold only replaceable files, with their bytes; otherwise the files themselves."""
        if not self.replaceable:
            return {}
        others = {each for path in (*self.files, *self.links) if path not in self.replaceable for each in parents(path)}
        left = dict[str, int]()
        for path, size in self.replaceable.items():
            top = next((each for each in reversed([*parents(path)]) if each not in others), path)
            left[top] = left.get(top, 0) + size
        return left


@dataclass(frozen=True)
class Selection:
    """What a host is asked for. `leave_out`: what it must not send; `home`: files that are here already."""

    wanted: Mapping[str, Stamp]
    leave_out: Sequence[str]
    home: Mapping[str, Stamp]

    @property
    def size(self) -> int:
        """The bytes of all wanted files."""
        return sum(stamp.size for stamp in self.wanted.values())

    def without(self, staged: Mapping[str, Stamp]) -> Selection:
        """Return the selection without the files that an interrupted fetch completed."""
        wanted = {path: stamp for path, stamp in self.wanted.items() if path not in staged}
        return Selection(wanted, [*self.leave_out, *staged], self.home)

    @property
    def input(self) -> bytes:
        """`leave_out` for send_run_folder.sh, less paths that end in a blank: tar ignores blanks at a line's end."""
        lines = (f"./{path}\n" for path in self.leave_out if path == path.rstrip())
        return "".join(lines).encode("utf-8", "surrogateescape")


def parse(answer: str) -> Listing:
    """Read the answer of the script list-files. Skips names that no local file can have.

    Raises DeployError if the list is incomplete.
    """
    sent, *lines = answer.split("\n")
    if lines[-2:] != ["end", ""]:
        raise DeployError("its list of files is incomplete")
    copies, *lines = lines
    files, links, pipes, again = dict[str, Stamp](), list[str](), list[str](), dict[str, int]()
    for line in lines[:-2]:
        match = _LINE.fullmatch(line)
        if not match or "\ufffd" in line:
            continue
        mode, path = int(match[1], 16), match[4]
        with suppress(BadAnswer):
            parts_of(path)
            if stat.S_ISREG(mode):
                files[path] = Stamp(int(match[2]), int(match[3]))
                if replaceable.kind_of(path, files[path].size):
                    again[path] = files[path].size
            elif stat.S_ISLNK(mode):
                links.append(path)
                if replaceable.kind_of(path, None):
                    again[path] = 0
            elif stat.S_ISFIFO(mode) and _HOUSEKEEPING.fullmatch(path):
                pipes.append(path)
    return Listing(files, links, again, _sent(sent), _copies(copies), pipes)


def select(
    listing: Listing, only: Sequence[str], is_home: Callable[[str, Stamp], bool], nodes: Container[str] = ()
) -> Selection:
    """Choose what to ask for: the matches of `only`; without patterns, all but unchanged sent and replaceable files.

    It leaves out a copy if the host of the original is one of `nodes`: that host has the file, or has removed it.
    """
    wanted, home, leave_out = dict[str, Stamp](), dict[str, Stamp](), list[str]()
    for path, stamp in listing.files.items():
        chosen = matches(path, only) if only else listing.sent.get(path) != stamp and path not in listing.replaceable
        if _HOUSEKEEPING.fullmatch(path) or not chosen or listing.origin(path) in nodes:
            leave_out.append(path)
        elif is_home(path, stamp):
            home[path] = stamp
            leave_out.append(path)
        else:
            wanted[path] = stamp
    if only:
        leave_out += [path for path in listing.links if not matches(path, only)]
    return Selection(wanted, [*leave_out, *([] if only else listing.folders_left), *listing.pipes], home)


def matches(path: str, patterns: Sequence[str]) -> bool:
    """Whether a pattern matches the path, or a folder above it. `*` also matches /."""
    names = [path, *parents(path)]
    return any(fnmatchcase(name, pattern.strip("/")) for pattern in patterns for name in names)


def _sent(text: str) -> dict[str, Stamp]:
    """The files that were sent to work/, from sent.json (contract.md); none if it is unreadable."""
    return {f"work/{path}": Stamp(size, time) for path, (_, size, time) in _rows(text, str, int, int).items()}


def _copies(text: str) -> dict[str, tuple[Stamp, str]]:
    """The files of copies.json (contract.md); none if it is unreadable."""
    return {path: (Stamp(size, time), node) for path, (size, time, node) in _rows(text, int, int, str).items()}


def _rows(text: str, *types: type) -> dict[str, list[Any]]:
    """The rows of a JSON object that are lists with exactly these types."""
    with suppress(BadAnswer):
        rows = document(text, "the list of its files", _MOST_ROWS, _MOST_PARTS)
        if isinstance(rows, dict):
            return {
                path: row
                for path, row in rows.items()
                if isinstance(row, list) and [type(value) for value in row] == [*types]
            }
    return {}
