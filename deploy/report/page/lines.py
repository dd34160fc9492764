"""The lines of a run's files as objects: a share of each file, and of one that grew only what is new.

Flow: ranks/, metrics.jsonl, telemetry/, scalars/ -> `Share.objects` -> data.py. Others write these files: nothing of
one raises, and a note says what is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

from ...core.budget import Budget
from ...core.errors import BadAnswer
from ...core.fields import json_object
from ...core.text import amount
from ...run import events as run_events
from ...run.files import apart, own_files

T = TypeVar("T")
MISSING = ": missing"
_MOST_FILES = 10_000
_NO_STEP = re.compile(rb'"kind":\s*"(?!step")')
_LINE = 200  # bytes that a line counts at least: an object of a few letters takes as much memory as one of many
_END = 200  # bytes by which a file that has grown is known again


@dataclass
class LinesRead:
    """What was read of a file: `size` bytes of whole lines, which end with `end`, and the objects in them.

    `rest`: a line that has no end yet. `last`: whether the last line is torn.
    """

    size: int = 0
    end: bytes = b""
    rest: bytes = b""
    taken: int = 0
    objects: list[Any] = field(default_factory=list)
    torn: int = 0
    last: bool = False

    def add(self, line: bytes, what: str, read: Callable[[dict[str, Any]], Any]) -> None:
        """Add the object of a line, or count it as torn."""
        try:
            value = read(json_object(line.decode(errors="replace"), what))
        except BadAnswer:
            self.torn, self.last = self.torn + 1, True
            return
        self.last = False
        if value is not None:
            self.objects.append(value)


class Share:
    """How much of each file the page takes: of a longer one, lines at even distances. Of a rank, all but its steps.

    `known`: what an earlier page has read, and this one adds to.
    """

    def __init__(self, folder: Path, most: int, quick: bool, known: dict[Path, LinesRead]) -> None:
        sizes = sorted(_size(path) for name in ("", "ranks", "telemetry", "scalars") for path in files_of(folder, name))
        self._most, self._quick, self._budget, self._known = most, quick, Budget(), known
        for at, size in enumerate(sizes):  # what short files leave is for the long ones
            self._most, most = most // (len(sizes) - at), max(0, most - size)
            if size > self._most:
                break

    def objects(self, path: Path, notes: list[str], read: Callable[[dict[str, Any]], T | None]) -> list[T]:
        """What `read` makes of each line's object, without None. It counts and drops torn lines."""
        part = LinesRead()
        with noting(path, notes):
            size = path.lstat().st_size
            part = self._known_part(path, size)
            for line in self._lines(path, size, part, notes):
                part.add(line, path.name, read)
        if part.rest:
            part = replace(part, objects=[*part.objects])
            part.add(part.rest, path.name, read)
        if part.torn:
            where = "its last line is torn" if part.torn == 1 and part.last else f"{part.torn} lines cannot be read"
            notes.append(f"{path.name}: {where}, left out")
        return part.objects

    def _known_part(self, path: Path, size: int) -> LinesRead:
        """What is known of a file that has only grown since, and is read as a whole. Raises OSError."""
        part = self._known.pop(path, LinesRead())
        has_grown = own_files.read_at(path, part.size - len(part.end), len(part.end)) == part.end
        return part if has_grown and size <= self._most else LinesRead()

    def _lines(self, path: Path, size: int, part: LinesRead, notes: list[str]) -> Iterator[bytes]:
        """The new lines of a file that are not empty. Raises OSError."""
        for line in self._all(path, part) if size <= self._most else self._some(path, size):
            if part.taken > 2 * self._most or self._budget.is_over:
                why = "takes too much time" if self._budget.is_over else "has very many lines"
                notes.append(f"{path.name}: its end is left out: it {why}")
                part.rest = b""
                return
            if line and not line.isspace():
                part.taken += max(len(line), _LINE)
                yield line
        if size <= self._most:
            self._known[path] = part
        else:
            notes.append(f"{path.name}: has {amount(size)}: a line of every {1 + size // (self._most + 1):,} is shown")

    def _all(self, path: Path, part: LinesRead) -> Iterator[bytes]:
        part.rest, at = b"", part.size
        for block in own_files.blocks(path, run_events.MOST_LINE, at):
            self._budget.add(len(block))
            yield part.rest  # of a line that is longer than any of ours
            *lines, rest = block.split(b"\n")
            yield from lines
            at += len(block)
            part.size, part.rest = at - len(rest), rest
            part.end = (part.end + block.removesuffix(rest))[-_END:]

    def _some(self, path: Path, size: int) -> Iterator[bytes]:
        """Lines at even distances: of a rank's file, which is read as a whole, and those that are about no step."""
        if self._quick or path.parent.name != "ranks":
            self._budget.add(size)
            beginning = next(own_files.blocks(path, run_events.MOST_LINE), b"")
            usual = max(_LINE, len(beginning) // max(1, beginning.count(b"\n")))
            yield from own_files.sample(path, 1 + self._most // usual, run_events.MOST_LINE)
            return
        every, due = 1 + size * _LINE // (self._most + 1), 0
        for block in own_files.blocks(path, run_events.MOST_LINE):
            self._budget.add(len(block))
            places = [*range(due, len(block), every), *(at.start() for at in _NO_STEP.finditer(block))]
            due = (due - len(block)) % every
            for start in sorted({block.rfind(b"\n", 0, place) + 1 for place in places}):
                yield block[start : block.find(b"\n", start) % (len(block) + 1)]
            yield b""  # for the reader to look at the time


@contextmanager
def noting(path: Path, notes: list[str]) -> Iterator[None]:
    """Note that a file is missing, or cannot be read."""
    try:
        yield
    except FileNotFoundError:
        notes.append(f"{path.name}{MISSING}")
    except OSError as error:
        notes.append(f"{path.name}: cannot be read: {error.strerror}")


def files_of(run_dir: Path, name: str = "") -> list[Path]:
    """The files of lines in a folder of the run, also those that lie apart for a host."""
    return [path for place in apart.folders(run_dir) for path in children(place / name) if path.suffix == ".jsonl"]


def children(folder: Path) -> list[Path]:
    """The paths in a folder, by name; empty if it is a link or no folder, or cannot be read."""
    try:
        return [] if folder.is_symlink() else sorted(islice(folder.iterdir(), _MOST_FILES))
    except OSError:
        return []


def _size(path: Path) -> int:
    with suppress(OSError):
        return path.lstat().st_size
    return 0
