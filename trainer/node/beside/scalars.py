"""The scalars that a script writes to its own files: muster.Training's, TensorBoard's, Lightning's, the Trainer's.

This searches the folders to which a script writes; new numbers go to `scalars/<node>.jsonl` (contract.md). These files
are the script's: there are limits on every number in them, and unexpected content is skipped. Standard library only; no
file is unpickled, no link followed.
"""

from __future__ import annotations

import csv
import fcntl
import io
import os
import re
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TextIO

from muster.files import Lines, object_of

from ..files import work
from ..rank.mask import Mask
from . import event_file, line_file

# Limits for one node's script: more files and tags than these are not read.
_MOST_FILES, _MOST_TAGS, _MOST_ENTRIES = 64, 300, 200_000
_MOST_TAG, _MOST_PATH, _MOST_STEP = 100, 300, 10**15
_MOST_TEXT, _MOST_BYTES = 4 << 20, 64 << 20
_MOST_RECORDS, _POINTS_A_LINE = 20_000, 500
# All points of a tag are kept up to here, then every second one, from twice as many on every fourth, and so on.
_ALL_POINTS = 2048
# An epoch is a position on the axis, not a measurement.
_AXES = ("step", "epoch")
_EVENTS, _CSV, _STATE, _LINES = "events.out.tfevents.", "metrics.csv", "trainer_state.json", "metrics.jsonl"
# An entry of the Trainer's history, in a text whose beginning may be cut off: numbers by their names.
_ENTRY = re.compile(r"\{[^{}\[\]]*\}")
_CHECKPOINT = re.compile(rf"checkpoint-\d+/(?={_STATE}$)")

Values = dict[str, dict[int, float]]
Read = Callable[[BinaryIO, int], tuple[list[event_file.Point], int]]


class Scalars:
    """How far the files of one node have been read. `hidden`: the secrets, which may occur in names."""

    def __init__(self, folder: Path, node: str, hidden: Iterable[str] = ()) -> None:
        self._folder, self._node, self._mask = folder, node, Mask(hidden)
        self._path = folder / "scalars" / f"{node}.jsonl"
        self._lines: Lines | None = None
        self._lock: TextIO | None = None
        self._tags = set[str]()
        self._stamps: dict[str, tuple[int, int]] = {}
        self._offsets: dict[str, int] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._last: dict[tuple[str, str], int] = {}

    def look(self, until: float) -> bool:
        """Read what is new; returns whether there may be more. No file is started after `until` (monotonic seconds)."""
        more, paths = False, self._files()
        if not paths:
            return False
        for path in paths if self._is_alone() else ():
            if time.monotonic() > until:
                return True
            with suppress(OSError):
                more = self._read(path) or more
        return more

    def _is_alone(self) -> bool:
        """Whether this node alone reads these files: another node of this machine may share the run folder.

        Once this is true, it stays true.
        """
        if self._lock is None:
            with suppress(OSError):
                lock = (self._folder / ".scalars.lock").open("w")
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                self._lock = lock
        return self._lock is not None

    def _files(self) -> list[str]:
        """The files to read. A file that was sent with the script, and is unchanged, does not belong to this run."""
        paths, own = list(_metric_files(self._folder)), list[str]()
        sent = work.sent_stamps(self._folder) if paths else {}
        for path in paths:
            with suppress(OSError):
                status = os.lstat(self._folder / path)
                if sent.get(path) != (status.st_size, int(status.st_mtime)):
                    own.append(path)
        new = [path for path in own if path not in self._stamps]
        return [path for path in own if path in self._stamps] + new[: max(0, _MOST_FILES - len(self._stamps))]

    def _read(self, path: str) -> bool:
        with _regular(self._folder / path) as file:
            status = os.fstat(file.fileno())
            stamp = (status.st_size, status.st_mtime_ns)
            if self._stamps.get(path) == stamp:
                return False
            if Path(path).name.startswith(_EVENTS):
                read = partial(event_file.read, size=status.st_size, most=_MOST_RECORDS)
                more = not self._is_copy(path) and self._read_on(path, file, status.st_size, read)
            elif path.endswith(_LINES):
                more = line_file.is_ours(file) and self._read_on(path, file, status.st_size, line_file.read)
            else:
                more = False
                self._read_text(path, _text(file, status.st_size).decode(errors="replace"))
            self._stamps[path] = (-1, 0) if more else stamp
            return more

    def _read_on(self, path: str, file: BinaryIO, size: int, read: Read) -> bool:
        """Continue to read a growing file where the last look ended; returns whether there may be more."""
        offset = self._offsets.get(path, 0)
        begin = offset if offset <= size else 0
        points, end = read(file, begin)
        self._offsets[path] = end
        self._tell(path, path, points)
        return begin < end < size

    def _is_copy(self, path: str) -> bool:
        """Whether these events repeat what muster/metrics.py has written into the file next to their folder."""
        events = (self._folder / path).parent
        with suppress(OSError), _regular(events.parent / _LINES) as lines:
            return events.name == "tensorboard" and line_file.is_ours(lines)
        return False

    def _read_text(self, path: str, text: str) -> None:
        """Read a file that is rewritten as a whole: report only what was added since the last time."""
        # A Trainer writes a file for each of its checkpoints, and each contains all numbers so far.
        family = _CHECKPOINT.sub("", path)
        values = read_trainer_state(text) if path.endswith(_STATE) else read_csv(text)
        new = []
        for tag, points in values.items():
            since = self._last.get((family, tag), -1)
            self._last[family, tag] = max(since, *points)
            new += [event_file.Point(tag, step, value) for step, value in points.items() if step > since]
        self._tell(path, family, new)

    def _tell(self, path: str, family: str, points: Iterable[event_file.Point]) -> None:
        """Write the new points of a file; if its family has many points, only a sample of them."""
        sample = []
        for point in points:
            key = family, point.tag
            self._counts[key] = index = self._counts.get(key, -1) + 1
            if _is_kept(index):
                sample.append(point)
        self._write(path, sample)

    def _write(self, path: str, points: Sequence[event_file.Point]) -> None:
        welcome = [point for point in points if self._is_welcome(point)]
        for start in range(0, len(welcome), _POINTS_A_LINE):
            tags: dict[str, list[tuple[int, float]]] = {}
            for tag, step, value in welcome[start : start + _POINTS_A_LINE]:
                tags.setdefault(self._mask.text(tag), []).append((step, value))
            if self._lines is None:
                self._lines = Lines(self._path)
            if self._path.stat().st_size < _MOST_BYTES:
                self._lines.add(node=self._node, file=self._mask.text(path), tags=tags)

    def _is_welcome(self, point: event_file.Point) -> bool:
        if not 0 <= point.step <= _MOST_STEP or len(point.tag) > _MOST_TAG or point.tag.split("/")[-1] in _AXES:
            return False
        if len(self._tags) < _MOST_TAGS:
            self._tags.add(point.tag)
        return point.tag in self._tags


def _text(file: BinaryIO, size: int) -> bytes:
    """The content of a file that is rewritten as a whole; of a long one, the column names and the last lines."""
    names = file.readline(_MOST_TEXT)
    if size > _MOST_TEXT:
        file.seek(size - _MOST_TEXT)
        file.readline(_MOST_TEXT)
    return names + file.read(_MOST_TEXT)


def read_csv(text: str) -> Values:
    """Lightning's metrics.csv: a column for each name, with gaps; an incomplete last line is left out."""
    values: Values = {}
    whole = text[: text.rfind("\n") + 1]
    with suppress(csv.Error):
        for row in csv.DictReader(io.StringIO(whole)):
            step = _number(row.get("step"))
            for tag, content in row.items():
                value = _number(content)
                if step is not None and value is not None and step == step // 1 and isinstance(tag, str):
                    values.setdefault(tag, {})[int(step)] = value
    return values


def read_trainer_state(text: str) -> Values:
    """The history of a Hugging Face Trainer: all entries that are complete in the text."""
    values: Values = {}
    history = object_of(text).get("log_history")
    for entry in history if isinstance(history, list) else map(object_of, _ENTRY.findall(text)):
        step = entry.get("step") if isinstance(entry, dict) else None
        if isinstance(step, int):
            for tag, value in entry.items():
                if isinstance(value, int | float) and not isinstance(value, bool):
                    with suppress(OverflowError):
                        values.setdefault(tag, {})[step] = float(value)
    return values


def _number(text: object) -> float | None:
    with suppress(ValueError):
        return float(text) if isinstance(text, str) and text else None
    return None


def _is_kept(index: int) -> bool:
    stride = 1 << max(0, index.bit_length() - _ALL_POINTS.bit_length() + 1)
    return index % stride == 0


def _metric_files(folder: Path) -> Iterator[str]:
    """Find files by their name, as paths in the run folder; stops after _MOST_ENTRIES folder entries."""
    entries = 0
    for top in (work.WORK, work.HOME, work.KEEP):
        for place, folders, names in os.walk(folder / top):
            # hidden folders last: a cache may have more entries than the limit
            folders.sort(key=lambda name: (name.startswith("."), name))
            entries += len(names) + len(folders)
            if entries > _MOST_ENTRIES:
                return
            for name in sorted(names):
                if name.startswith(_EVENTS) or name in (_CSV, _STATE, _LINES):
                    path = os.path.relpath(os.path.join(place, name), folder)
                    if len(path) <= _MOST_PATH:
                        yield path


@contextmanager
def _regular(path: Path) -> Iterator[BinaryIO]:
    """A file to read. Raises OSError for a link, a pipe or a folder."""
    more = os.O_NOFOLLOW | os.O_NONBLOCK
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | more)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is not a file")
        yield file
