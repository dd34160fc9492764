"""The output of a node: each rank's output in logs/rank-<r>.log, and the lines of all ranks on the node's console.

Each rank writes into a pipe of its own (rank_pipe.py), so that the outputs of a node's ranks stay apart. The log
takes every byte, up to a limit. The console gets whole lines, at a rate that a distant reader can follow; lines that do
not fit are counted and reported. The agent (agent.py) starts and ends this. Standard library only.
"""

from __future__ import annotations

import io
import os
import re
import selectors
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..ending.rank_lives import Ends, Life
from ..launch import rank_pipe
from ..rank.mask import Mask
from ..rank.place import in_run
from ..variables import FIRST_FILE, number
from .console import LINE_WEIGHT, Console

# The limit of one rank's log in bytes; MUSTER_LOG_LIMIT overrides it.
LOG_MOST = 1 << 30
_TAIL = 64 << 10
_PIECE = 1 << 20
# A line without an end is passed on in pieces of this size.
_LINE_MOST = 16 << 10
# How many of a rank's last lines are printed when it ends, if lines of it were left out.
_LAST_LINES = 20
_MOVING_EVERY_S = 1.0
_HOLD_S = 0.2
# How long to wait for torchrun's note that a rank has begun, if the rank already prints. On a full disk no note comes.
_BEGINS_S = 0.5
# How long to read on at the end: a process that a rank left behind may hold a pipe open for ever.
_REST_SECONDS = 2.0
# To draw a second progress bar below the first, a program prints a newline and the bar, and moves the cursor back up.
# Its next newline moves down to that bar again, so it is a redraw, like a carriage return.
# No program draws more than 16 bars; without a bound, the regex would search a long row of them from each position.
_REDRAW = re.compile(rb"(?:\x1b\[[0-9]{0,3}A){1,16}\r?\n+")
# Newlines that move down to another bar, after which the cursor moves up again: they do not end a line either.
_DOWN = re.compile(rb"|".join(rb"\n{%d}(?=\r[^\n\x1b]*(?:\x1b\[A){%d})" % (down, down) for down in (3, 2, 1)))
_DRAWS_BELOW = re.compile(rb"(?:\r[^\n\x1b]*(?:\x1b\[?)?)?")
_UP = re.compile(rb"(?:\x1b\[[0-9]{0,3}A){0,16}\r?$")
_CURSOR = re.compile(rb"\x1b\[[0-9;]{0,16}[A-HJK]")


class Output:
    """The output of torchrun and of the ranks of one node. Make it before torchrun starts, then call `follow`."""

    def __init__(
        self, outcome: Path, run_folder: Path | None, environment: Mapping[str, str], hidden: Sequence[str] = ()
    ) -> None:
        count = environment.get("PET_NPROC_PER_NODE", "1")
        ranks = int(count) if count.isdecimal() else max(16, os.cpu_count() or 1)
        most = number(environment, "MUSTER_LOG_LIMIT", LOG_MOST)
        self._console = Console()
        self._lock, self._closed = threading.Lock(), False
        self._selector = selectors.DefaultSelector()
        self._ends = Ends(outcome)
        self._torchrun = _Torchrun(self._console, self._lives)
        first = environment.get(FIRST_FILE)
        self._ranks = [
            _Rank(self._lives, place, ranks > 1, run_folder, most, self._console, int(first) + place if first else None)
            for place in range(ranks)
        ]
        # The descriptors into which the ranks write, by local rank.
        self.pipes = [rank.writing for rank in self._ranks]
        for rank in self._ranks:
            self._selector.register(rank.pipe, selectors.EVENT_READ, rank)
        self._masked = bool(hidden)
        for source in (self._torchrun, *self._ranks):
            source.mask = Mask(hidden)
        self._reader = threading.Thread(target=self._read, daemon=True, name="muster-output")

    def _lives(self) -> Mapping[int, Life]:
        """The current lives by local rank: whose output a pipe carries. Only one thread at a time may call this."""
        self._ends.read()
        return self._ends.lives

    def follow(self, torchrun: subprocess.Popen[bytes]) -> None:
        """Start to read what torchrun itself and its ranks print."""
        for pipe in (torchrun.stdout, torchrun.stderr):
            if pipe:
                os.set_blocking(pipe.fileno(), False)
                self._selector.register(pipe.fileno(), selectors.EVENT_READ, self._torchrun)
        self._reader.start()

    def finish(self) -> None:
        """Pass on what is left, once torchrun has ended."""
        self._closed = True
        self._reader.join(_REST_SECONDS)
        self._console.finish(trim=bool(self._ends.lives))

    def words(self, local_rank: int) -> str:
        """The last 64 KB that a rank printed in its current life; empty for a local rank that the script invented."""
        if local_rank >= len(self._ranks):
            return ""
        rank = self._ranks[local_rank]
        end = time.monotonic() + _REST_SECONDS
        while rank_pipe.is_unread(rank.pipe) and time.monotonic() < end:
            time.sleep(0.01)
        with self._lock:
            rank.settle(float("inf"))
            return _CURSOR.sub(b"", rank.tail).decode(errors="replace")

    def _read(self) -> None:
        while True:
            closed = self._closed
            ready = self._selector.select(0 if closed else _MOVING_EVERY_S / 2)
            for key, _ in ready:
                with self._lock:
                    if not self._read_one(key.fd, key.data):
                        self._selector.unregister(key.fd)
            if closed and not ready:
                break
            if not closed:
                now = time.monotonic()
                for source in (self._torchrun, *self._ranks) if self._masked else ():
                    with self._lock:
                        source.settle(now)
                for rank in self._ranks:
                    rank.show_unfinished(now)
        for rank in self._ranks:
            if rest := rank.mask.rest():
                rank.take(rest)
            rank.close()

    @staticmethod
    def _read_one(descriptor: int, source: _Source) -> bool:
        """Read once; returns False if the pipe has ended."""
        try:
            data = os.read(descriptor, _PIECE)
        except BlockingIOError:
            return True
        except OSError:
            return False
        source.read(data)
        return bool(data)


class _Source:
    """One pipe: keeps the tail of what it carries, and puts its lines on the console, each with a prefix (`_mark`)."""

    def __init__(self, console: Console) -> None:
        self._console, self.tail = console, b""
        self._mark = self._rest = b""
        self._shown_at = 0.0
        self._shown = self._seen = b""
        self._seen_at, self._skips = 0.0, False
        self._held, self._held_at = b"", 0.0
        self.mask, self._read_at = Mask(()), 0.0

    def read(self, data: bytes) -> None:
        """Take new bytes from the pipe; empty means that it has ended."""
        self._read_at = time.monotonic()
        shown = self.mask.take(data) if data else self.mask.rest()
        if shown or not data:
            self.take(shown)

    def settle(self, now: float) -> None:
        """Show held-back characters that might have begun a secret, since nothing has followed them for a while."""
        if now - self._read_at >= _HOLD_S and (shown := self.mask.settle()):
            self.take(shown)

    def take(self, data: bytes) -> None:
        """Take new bytes after masking, in pieces of any size."""
        self.tail = (self.tail + data[-_TAIL:])[-_TAIL:]
        if self._held:
            data, self._held = self._held + data, b""
        self._pass_on(data, hold=bool(data))

    def _pass_on(self, data: bytes, hold: bool) -> None:
        """Put whole lines on the console. `hold`: hold a progress bar back, because another may be drawn below it."""
        room = self._console.room()
        if room <= 0:
            self._leave_out(data)
            return
        # If much more comes than fits, only the part that fits is parsed.
        over = data.find(b"\n", max(room, _LINE_MOST)) + 1
        text = self._rest + (data[:over] if over else data)
        if b"\r" in text or b"\x1b" in text:
            text = _DOWN.sub(_goes_down, _REDRAW.sub(_drawn_again, text))
            if hold and not over and (at := _open_bar(text)) is not None:
                text, self._held, self._held_at = text[:at], text[at:], time.monotonic()
        *whole, self._rest = text.split(b"\n")
        weight = sum(map(len, whole)) + LINE_WEIGHT * len(whole)
        fit = len(whole) if weight <= room else max(1, len(whole) * room // weight)
        self._console.put([self._mark + _last_drawn(line) + b"\n" for line in whole[:fit]])
        self._skips = fit < len(whole)
        if self._skips:
            self._console.skip(sum(map(len, whole[fit:])) + len(whole) - fit, len(whole) - fit)
        if 0 < over < len(data):
            self._leave_out(data[over:])
        if len(self._rest) > _LINE_MOST:
            if b"\r" in self._rest:
                self._rest = _shortened(self._rest)
            else:
                self._console.put([self._mark + self._rest + b"\n"])
                self._rest = b""

    def _leave_out(self, data: bytes) -> None:
        """Leave these bytes out, and count them, because the console has no room."""
        head, end, rest = data.rpartition(b"\n")
        self._console.skip(len(data), head.count(b"\n") + len(end))
        self._rest = rest[-_LINE_MOST:] if end else (self._rest + rest)[-_LINE_MOST:]
        self._skips = True

    def show_unfinished(self, now: float) -> None:
        """Show a line that has no end yet, such as a progress bar, at most once a second.

        A carriage return before it marks it as a line that will change.
        """
        if self._held and now - self._held_at >= _HOLD_S:
            data, self._held = self._held, b""
            self._pass_on(data, hold=False)
        text, draws = _last_drawn(self._rest), b"\r" in self._rest
        if self._rest != self._seen:
            self._seen, self._seen_at = self._rest, now
        # Text that is not redrawn may soon get its newline, since print writes that separately.
        stands = draws or now - self._seen_at >= _MOVING_EVERY_S
        if text in (b"", self._shown) or not stands or now - self._shown_at < _MOVING_EVERY_S:
            return
        self._shown, self._shown_at = text, now
        self._rest = _shortened(self._rest) if draws else self._rest
        self._console.put([self._mark + b"\r" + text[:_LINE_MOST] + b"\n"])


class _Torchrun(_Source):
    """The output of torchrun itself and of ranks without a pipe. No log has it, so none of it may be left out."""

    def __init__(self, console: Console, lives: Callable[[], Mapping[int, Life]]) -> None:
        super().__init__(console)
        self._lives = lives

    def take(self, data: bytes) -> None:
        self._mark = b"torchrun: " if self._lives() else b""
        while self._console.room() <= 0:
            time.sleep(0.01)
        super().take(data)
        if not data and self._rest:
            self._console.put([self._mark + self._rest + b"\n"])


class _Rank(_Source):
    """One local rank: its pipe, its log and its console lines. Its rank number may differ from one life to the next.

    `file`: the number of its log, if that is not the rank's number (min_nodes.py).
    """

    def __init__(
        self,
        lives: Callable[[], Mapping[int, Life]],
        place: int,
        marked: bool,
        run_folder: Path | None,
        most: int,
        console: Console,
        file: int | None,
    ) -> None:
        super().__init__(console)
        self._lives, self._place, self._marked, self._folder, self._most = lives, place, marked, run_folder, most
        self._file = file
        self.pipe, self.writing = rank_pipe.make()
        self._pid, self._waits_until = 0, 0.0
        self._log: io.FileIO | None = None
        self._written = self._cut = 0

    def read(self, data: bytes) -> None:
        self._look_for_a_new_life()
        super().read(data)

    def take(self, data: bytes) -> None:
        self._write(data)
        super().take(data)

    def _look_for_a_new_life(self) -> None:
        self._waits_until = self._waits_until or time.monotonic() + _BEGINS_S
        while (life := self._lives().get(self._place)) is None and time.monotonic() < self._waits_until:
            time.sleep(0.01)
        if life and life.pid != self._pid:
            if rest := self.mask.rest():
                self.take(rest)
            self.close()
            self._pid = life.pid
            self._mark = b"[rank%d]: " % life.rank if self._marked else b""
            self._open(f"rank-{in_run(life.rank if self._file is None else self._file)}.log")

    def _open(self, name: str) -> None:
        if self._folder:
            with suppress(OSError):
                path = self._folder / "logs" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                # Unbuffered, so that the last output of a rank is in the log even if the node is killed.
                self._log = path.open("ab", buffering=0)
                self._written = self._log.tell()

    def _write(self, data: bytes) -> None:
        room = max(0, self._most - self._written)
        taken = 0
        if self._log and room:
            with suppress(OSError):  # a full disk; the lost bytes are counted below
                taken = self._log.write(data[:room]) or 0
        self._written += taken
        self._cut += len(data) - taken if self._log else 0

    def close(self) -> None:
        """Close the log of this life. The console gets the last lines, if lines were left out, and an unended line."""
        self._pass_on(self._held, hold=False)
        if self._skips:
            last = [line + b"\n" for line in self.tail.split(b"\n")[-_LAST_LINES - 1 : -1]]
            self._console.skip(-sum(map(len, last)), -len(last))
            self._console.put([self._mark + line for line in last])
            self._skips = False
        if self._rest:
            self._console.put([self._mark + _last_drawn(self._rest) + b"\n"])
        if self._log:
            note = b"\nmuster: %d bytes are missing here: the log has its limit, or the disk was full; the last:\n"
            try:
                if self._cut:
                    self._log.write(note % self._cut + self.tail)
                self._log.close()
            except OSError:
                self._console.put([b"muster: %d bytes are missing in a log: the disk is full\n" % self._cut])
        self.tail = self._rest = self._held = b""
        self._log, self._written, self._cut = None, 0, 0


def _drawn_again(end: re.Match[bytes]) -> bytes:
    return b"\r" * len(end[0])


def _goes_down(end: re.Match[bytes]) -> bytes:
    """The replacement for newlines that move down: a carriage return after a bar; after text, they end the line."""
    text, at = end.string, end.start()
    return b"\r" if b"\r" in text[text.rfind(b"\n", 0, at) + 1 : at] else end[0]


def _open_bar(text: bytes) -> int | None:
    """Where a bar begins whose newline may end the line or move down to the next bar, which later bytes will show."""
    end = text.rfind(b"\n")
    if end < 0 or not _DRAWS_BELOW.fullmatch(text, end + 1):
        return None
    line = text[: end + 1].rstrip(b"\n")
    start = line.rfind(b"\n") + 1
    return start if b"\r" in line[start:] and len(text) - start < _LINE_MOST else None


def _shortened(line: bytes) -> bytes:
    """A line that is still being redrawn, cut to its last state and the cursor movements up from it."""
    up = _UP.search(line)
    return b"\r" + _last_drawn(line)[-_LINE_MOST // 2 :] + (up[0] if up else b"")


def _last_drawn(line: bytes) -> bytes:
    """What a terminal shows after a line was drawn several times, as a progress bar does with carriage returns."""
    if b"\r" not in line and b"\x1b" not in line:
        return line if line.strip() else b""
    return next((text for text in reversed(_CURSOR.sub(b"", line).split(b"\r")) if text.strip()), b"")
