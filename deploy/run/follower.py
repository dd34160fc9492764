"""Read what is new in the files of a run, for its follower and its page; choose which lines of very long files to read.

Containers, hosts and scripts write these files, so their content never raises an error; an event `unread` reports what
was left out.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from ..core.budget import Budget
from ..core.errors import BadAnswer
from ..core.fields import document
from ..core.text import amount
from . import events as run_events
from .events import Event
from .files import host_copies, own_files

# For all files together. The events of all ranks are sorted by time, so this is more than other readers may hold.
# Documents beyond this limit wait for the next look.
_MOST_AT_ONCE, _MOST_FILES, _MOST_DOCUMENT = 32 << 20, 10_000, 128 << 10
# A line counts as at least this many bytes: an event of a few letters takes as much memory as a long one.
_LEAST_LINE = 200
# How many of the last bytes read are kept, to check later that a file has only grown.
_END_BYTES = 200
# The rank in a file's name. A script may write a line without a rank; the line then belongs to this rank.
_RANK_IN_NAME = re.compile(r"ranks/rank-([0-9]{1,5})\.jsonl")
_NO_STEP = re.compile(rb'"kind":\s*"(?!step")')
_READERS = {"ranks": run_events.of_rank, "telemetry": run_events.of_telemetry, "scalars": run_events.of_scalars}


@dataclass
class _Place:
    """How far a file has been read: its first `size` bytes, which end with `end`.

    If `end` is empty, the `size` bytes may end within a line. `torn`: the last line was incomplete when it was read.
    """

    size: int
    end: bytes = b""
    torn: bool = False


class Follower:
    """Reads the new lines of the run folder's files: those written from now on, or all of them (`from_start`).

    `tail`: also read this many bytes at the end of each file. Events older than `since` belong to earlier starts of the
    run and are skipped. `of_hosts`: other machines wrote the files. `most`: how many new bytes one call reads; of
    longer files it reads lines at even distances, but from a rank's file also every line that is not a step. `quick`:
    never read a long file as a whole, not even for those lines.
    """

    def __init__(
        self,
        run_dir: Path,
        from_start: bool = False,
        tail: int = 0,
        since: float = 0.0,
        of_hosts: bool = False,
        most: int = _MOST_AT_ONCE,
        quick: bool = False,
    ) -> None:
        self._dir, self.since, self._most, self._quick = run_dir.absolute(), since, most, quick
        self._verdict = run_events.verdict_of_host if of_hosts else run_events.verdict
        self._places: dict[str, _Place] = {}
        if not from_start:
            self._places = {name: _Place(max(0, size - tail)) for name, size in self._line_files().items()}
        self._stamps: dict[str, int] = {}

    def read(self, untimed: float | None = None) -> list[Event]:
        """The events since the last call, sorted by time. A line without a time gets `untimed`, or the time now."""
        now, events, budget = time.time() if untimed is None else untimed, list[Event](), Budget()
        new = {}
        for name, size in self._line_files().items():
            if size < self._places.setdefault(name, _Place(0)).size:  # the file was created anew
                self._places[name] = _Place(0)
            if size != self._places[name].size:
                new[name] = size
        most = _share((size - self._places[name].size for name, size in new.items()), self._most)
        for name, size in new.items():
            events += self._new_events(name, size, most, budget, now)
        events += self._new_documents("nodes", run_events.node_up, now)
        events += self._new_documents("outcome", self._verdict, now)
        return sorted((event for event in events if event["t"] >= self.since), key=lambda event: float(event["t"]))

    @property
    def only_grew(self) -> bool:
        """Whether all files together still fit into one call of `read`, and each has only grown since it was read."""
        sizes = self._line_files()
        with suppress(OSError):
            return sum(sizes.values()) <= self._most and all(
                sizes.get(name, 0) >= place.size and (not place.end or self._ends_so(name, place))
                for name, place in self._places.items()
            )
        return False

    def _ends_so(self, name: str, place: _Place) -> bool:
        return own_files.read_at(self._dir, name, place.size - len(place.end), len(place.end)) == place.end

    def unfinished(self) -> list[str]:
        """The files whose last line was incomplete when they were read."""
        return [name for name, place in self._places.items() if place.torn]

    def _line_files(self) -> dict[str, int]:
        """The files of events and numbers: their paths relative to the run folder, with the size of each."""
        files = []
        for folder in host_copies.folders(self._dir):
            files += _files(folder / "ranks", ".jsonl", "rank-")
            files += _files(folder, ".jsonl", "metrics")
            files += _files(folder / "telemetry", ".jsonl")
            files += _files(folder / "scalars", ".jsonl")
        return {path.removeprefix(f"{self._dir}/"): stat.st_size for path, stat in files[:_MOST_FILES]}

    def _new_events(self, name: str, size: int, most: int, budget: Budget, now: float) -> list[Event]:
        """The new events of a file; if more than `most` bytes are new, only the events of some lines."""
        place, (folder, _, shown) = self._places[name], name.rpartition("/")
        events, bad, taken, why, new = list[Event](), 0, 0, "", size - place.size
        if new > most:
            why = f"has {amount(new)}: only one line in {1 + new // (most + 1):,} is shown"
        # `ranks/x`, or `hosts/<node>/ranks/x`
        read = _READERS.get(folder.rpartition("/")[2] if name.count("/") % 2 else "", run_events.of_metrics)
        rank = _RANK_IN_NAME.search(name)
        try:
            for line in self._some(name, place, size, most, budget) if why else self._all(name, place, budget):
                if taken > 2 * most or budget.is_behind:
                    too_much = "takes too long" if budget.is_behind else "has very many lines"
                    why = f"its end is left out, because it {too_much}"
                    break
                if line and not line.isspace():
                    taken += max(len(line), _LEAST_LINE)
                    try:
                        value = document(line.decode(errors="replace"), shown, run_events.MOST_LINE)
                        if rank and isinstance(value, dict):
                            value.setdefault("rank", int(rank[1]))
                        events.append(read(value, now))
                    except BadAnswer:  # a kill cut the line off, or a script wrote it; the next line is whole
                        bad += 1
        except OSError as fault:  # somebody removed or replaced the file meanwhile, or took away the right to read it
            why = f"cannot be read: {fault.strerror}"
        if why:
            place.size, place.end, place.torn = max(place.size, size), b"", False
        at = time.time()
        return [*events, *run_events.unread(bad, shown, at), *run_events.unread(int(bool(why)), shown, at, why)]

    def _all(self, name: str, place: _Place, budget: Budget) -> Iterator[bytes]:
        """Yield the new whole lines of a file; the next call yields a line still being written. Raises OSError."""
        inside = place.size > 0 and not place.end
        rest, at = b"", place.size - inside
        for block in own_files.blocks(self._dir, name, run_events.MOST_LINE, at):
            budget.add(len(block))
            yield rest  # part of a line that is longer than any line that Muster writes
            *lines, rest = block.split(b"\n")
            if (lines or not inside) and _is_whole(rest):  # only its newline is missing, and may never come
                lines, rest = [*lines, rest], b""
            yield from lines[inside:]
            inside, at = inside and not lines, at + len(block)
            place.size, place.end = at - len(rest), (place.end + block.removesuffix(rest))[-_END_BYTES:]
        place.torn = bool(rest)

    def _some(self, name: str, place: _Place, size: int, most: int, budget: Budget) -> Iterator[bytes]:
        """Yield new lines at even distances. A rank's file is read as a whole: its lines that are no step come, too."""
        if self._quick or "ranks/rank-" not in name:
            budget.add(size - place.size)
            beginning = next(own_files.blocks(self._dir, name, run_events.MOST_LINE, place.size), b"")
            usual = max(_LEAST_LINE, len(beginning) // max(1, beginning.count(b"\n")))
            yield from own_files.sample(self._dir, name, 1 + most // usual, run_events.MOST_LINE, place.size)
            return
        every, due = 1 + (size - place.size) * _LEAST_LINE // (most + 1), 0
        for block in own_files.blocks(self._dir, name, run_events.MOST_LINE, place.size):
            budget.add(len(block))
            places = [*range(due, len(block), every), *(at.start() for at in _NO_STEP.finditer(block))]
            due = (due - len(block)) % every
            for start in sorted({block.rfind(b"\n", 0, place) + 1 for place in places}):
                yield block[start : block.find(b"\n", start) % (len(block) + 1)]
            yield b""  # lets the reader check its time limit

    def _new_documents(self, folder: str, read: Callable[[object, float], Event], now: float) -> Iterator[Event]:
        left = _MOST_AT_ONCE
        for path, stat in _files(self._dir / folder, ".json"):
            if self._stamps.get(path) == stat.st_mtime_ns or left < 0:
                continue
            left -= min(stat.st_size, _MOST_DOCUMENT)
            self._stamps[path] = stat.st_mtime_ns
            try:
                content = own_files.read(Path(path), _MOST_DOCUMENT)
                yield read(document(content, Path(path).name, _MOST_DOCUMENT), now)
            except FileNotFoundError:  # somebody removed it meanwhile
                continue
            except (OSError, BadAnswer):
                yield from run_events.unread(1, f"{folder}/{Path(path).name}", time.time())


def _is_whole(line: bytes) -> bool:
    """Whether the line is a complete JSON object; the beginning of a longer line is not."""
    try:
        return line.endswith(b"}") and isinstance(document(line, "", run_events.MOST_LINE), dict)
    except BadAnswer:
        return False


def _share(sizes: Iterable[int], most: int) -> int:
    """How many bytes to read of each file: the long files share what the short ones leave of `most`."""
    ordered, share = sorted(sizes), most
    for at, size in enumerate(ordered):
        share, most = most // (len(ordered) - at), max(0, most - size)
        if size > share:
            break
    return share


def _files(folder: Path, suffix: str, prefix: str = "") -> list[tuple[str, os.stat_result]]:
    """The files of a folder with this suffix and prefix, sorted; empty if the folder does not exist yet.

    Muster looks at a run ten times a second; with Path.glob each look takes twice as long (0.4 ms instead of 0.2).
    """
    files = []
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in islice(entries, _MOST_FILES):
            if entry.name.endswith(suffix) and entry.name.startswith(prefix) and not entry.name.startswith("."):
                with suppress(OSError):  # somebody removed it meanwhile
                    # A symlink is listed, so that its reader refuses it with a message.
                    if entry.is_file(follow_symlinks=False) or entry.is_symlink():
                        files.append((entry.path, entry.stat(follow_symlinks=False)))
    return sorted(files)
