"""Read a log of any size once, in bounded memory: find every sign, and how it ends. Pure: bytes in, a Reading out.

Most of a log is training output. In a chunk without any of a few words, lines are only counted. In other chunks, lines
that differ only in their numbers are examined a few times and then skipped. The start and end are read completely.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from functools import lru_cache

from ..core.budget import Budget
from .blame import sign_by_words
from .launchers import Report, ended
from .lines import REMEMBERED, LogLine, prefix_of, split_line, time_of, without_prefix
from .reading import Hit, Line, Reading
from .refine import refined
from .signs.kinds import Sign, Weight
from .signs.network_and_host import NO_PROGRAM
from .signs.table import LAST_ERROR, NO_FAMILY, NOT_REACHED, REASON, RENDEZVOUS_FAILED, SIGNS, STORE, UNKNOWN_NAME
from .victims import wait_of
from .words import (
    ANY_CLASS,
    BAD_END,
    ERROR,
    EXCEPTION,
    FRAME,
    GOOD_END,
    IN_A_THREAD,
    INNER,
    LONGEST,
    LOUD,
    MAIN_EXCEPTION,
    NEGATION,
    QUIET,
    REFERS_ELSEWHERE,
    SIDE_ISSUE,
    TRACEBACK,
    WORD,
    WORDS,
    WRAPPERS,
    compile_limited,
    facts,
)

CHUNK = 1 << 17
_MOST_WAITS, _MOST_PREFIXES, _MOST_ERRORS = 4096, 16, 8
_MOST_HITS, _MOST_CALLS, _MOST_SHAPES, _SAME_SHAPE = 400, 100, 20_000, 4
_MOST_RANKS, _LONGEST_ERROR = 10_000, 1000
_BEFORE = 16 << 10
_BEHIND = 80  # lines before an exception that are searched for its time and its file
_SHORTENED = 400
_PARTS = 200  # states of a progress bar in one line that are read, counted from the end: an error comes after the last
_DIGITS = re.compile(rb"[0-9][0-9a-fA-Fx]*")
_PROGRESS = re.compile(rb"(?:loss|[Ss]tep|[Ee]poch|[Ii]ter(?:ation)?s?)['\" ]{0,3}[\]:=( ][\s\[(]{0,3}\d")
_LAST_LINES = 100
_LOSS = re.compile(rb"(?i)\bloss['\"]?[ \t]{0,3}[:=]?[ \t]{0,3}[-+]?(nan\b|inf\b|\d)")
_RANK_NUMBER = compile_limited(r"rank (\d{1,6})")
_WORLD = compile_limited(r"(?i)\b(?:world[_ ]size['\"]?(?: is)?[=: ]{1,3}|starting with )(\d{1,5})\b(?! of)")


def read(
    node: str,
    chunks: Iterable[bytes],
    tell: Callable[[int], None] = lambda size: None,
    who: str = "",
    budget: Budget | None = None,
) -> Reading:
    """Read one stream, in pieces of any size; calls `tell` with the bytes read. who: the rank that wrote it.

    budget: shared by all streams of the command; sources.pieces adds the bytes to it. None: the stream gets its own.
    """
    alone = budget is None
    budget = budget or Budget()
    reader = _Reader(node, who, budget)
    held = []
    size = 0
    for number, chunk in enumerate(_whole_lines(chunks)):
        size += len(chunk)
        tell(size)
        if alone:
            budget.add(len(chunk))
        held.append(chunk)
        if len(held) > 2:
            reader.take(held.pop(0), whole=False)
        if not number:
            reader.take(held.pop(0), whole=True)
    for chunk in held:
        reader.take(chunk, whole=True)
    reader.reading.cut = budget.is_over
    return reader.end()


def _whole_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Regroup pieces so that each ends with a whole line; a line longer than a piece is cut."""
    rest = b""
    for chunk in chunks:
        rest += chunk
        end = rest.rfind(b"\n") + 1
        if end or len(rest) > CHUNK:
            yield rest[: end or len(rest)]
            rest = rest[end or len(rest) :]
    if rest:
        yield rest


@lru_cache(maxsize=2048)  # hosts of one run print the same lines
def sign_of(line: str) -> Sign | None:
    """The first sign in the tables that matches this line."""
    line = facts(line)
    return next((sign for sign in SIGNS if sign.pattern.search(line)), None)


class _Reader:
    """The state of one pass over a stream."""

    def __init__(self, node: str, who: str, budget: Budget) -> None:
        self.reading = Reading(node)
        self._who, self._budget = who, budget
        self._shapes: dict[int, int] = {}
        self._hit_counts: dict[tuple[int, str], int] = {}
        self._report = Report()
        self._aside: dict[str, int] = {}
        self._threads: dict[str, int] = {}
        self._inner: bool | None = None
        self._before: list[bytes] = []
        self._prefixes: dict[str, re.Pattern[str]] = {}

    def end(self) -> Reading:
        """The result, after everything is read."""
        root = self._report.end()
        if root is not None:
            self.reading.roots.append(root)
        self.reading.ranks |= self._report.ranks
        return self.reading

    def take(self, chunk: bytes, whole: bool) -> None:
        """Take one piece of whole lines; `whole`: look at every line in it."""
        seen = self.reading
        start = seen.number
        if self.reading.hits or whole:
            self._progress(chunk)
        late = self._late(whole)
        if late or not (whole or self._report.open or any(word in chunk for word in WORDS)):
            count = chunk.count(b"\n")
            seen.number += count
            seen.unread += count * late
            self._before = chunk[-_BEFORE:].split(b"\n")[-_BEHIND:]
            return
        lines = chunk.split(b"\n")
        if lines[-1] == b"":
            lines.pop()
        for index, line in enumerate(lines):
            if whole or self._report.open or WORD.search(line):
                if self._late(whole):
                    seen.unread += len(lines) - index
                    break
                self._look(lines, index, start + index + 1)
        seen.number = start + len(lines)
        self._before = (self._before + [line[:LONGEST] for line in lines[-_BEHIND:]])[-_BEHIND:]
        if whole and lines:
            self._ends(lines, start)
            self._last_losses(lines, start)

    def _late(self, whole: bool) -> bool:
        """Whether there is no time left for the next line; at a stream's start and end, a larger limit applies."""
        return self._budget.is_over if whole else self._budget.is_behind

    def _progress(self, chunk: bytes) -> None:
        """Note the last line in this chunk that shows a training step, if there is one."""
        tail = chunk[-8192:]
        ends = [match.end() for match in _PROGRESS.finditer(tail)]
        if ends:
            self.reading.progress = self.reading.number + chunk.count(b"\n") - tail.count(b"\n", ends[-1]) + 1

    def _line(self, part: LogLine, number: int) -> Line:
        who = " ".join(filter(None, (part.who, part.rank)))
        return Line(self.reading.node, number, part.whole.strip()[:_SHORTENED], who)

    def _new(self, line: bytes) -> bool:
        """Whether only few earlier lines had the same words, apart from numbers."""
        shape = hash(_DIGITS.sub(b"0", line[:LONGEST]))
        count = self._shapes.get(shape, 0)
        if count or len(self._shapes) < _MOST_SHAPES:
            self._shapes[shape] = count + 1
        return count < _SAME_SHAPE

    def _look(self, lines: list[bytes], index: int, number: int) -> None:
        raw = lines[index]
        if not (self._report.open or self._waits(raw) or self._new(raw)):
            return
        first, *states = raw.split(b"\r")  # an error may come before or after a progress bar
        for piece in (first, *states[-_PARTS:]):
            if self._budget.is_over:
                self.reading.unread += 1
                return
            part = self._plain(piece)
            if self._who and not part.rank:
                part = replace(part, rank=self._who)
            if part.whole:
                self._judge(part, lines, index, number)

    def _plain(self, raw: bytes) -> LogLine:
        """A line without colours and prefixes, including a prefix that an earlier traceback in this stream showed."""
        part = split_line(raw[:LONGEST].decode(errors="replace"))
        prefix = prefix_of(part.text) if len(self._prefixes) < _MOST_PREFIXES else None
        if prefix is not None:
            self._prefixes.setdefault(prefix.pattern, prefix)
        return without_prefix(part, self._prefixes.values()) if self._prefixes else part

    def _waits(self, raw: bytes) -> bool:
        """Whether the line says in which collective a rank waits: such lines are read for every rank."""
        return b"Watchdog caught" in raw and len(self.reading.waits) < _MOST_WAITS

    def _judge(self, part: LogLine, lines: list[bytes], index: int, number: int) -> None:
        seen = self.reading
        line = self._line(part, number)
        if self._reported(part, line):
            return
        self._count(part)
        if GOOD_END.search(part.text) and not BAD_END.search(part.text) and not NEGATION.search(part.text):
            seen.well = number
        elif BAD_END.search(part.text):
            seen.badly = number
        sign = (sign_of if len(part.whole) <= REMEMBERED else sign_of.__wrapped__)(part.whole)
        exception = EXCEPTION.match(part.text) or self._after_frames(part, lines, index)
        error = f"{exception[1]}: {self._words_of(exception, lines, index)}".strip() if exception else ""
        error = error[:_LONGEST_ERROR]
        if SIDE_ISSUE.search(part.text):
            self._note(self._aside, part.rank, number)
        elif MAIN_EXCEPTION.search(part.text):
            self._aside.pop(part.rank, None)
        if IN_A_THREAD.match(part.text):
            self._note(self._threads, part.rank, number)
        self._store(part.whole, line)
        if LAST_ERROR.search(part.text):
            self._last_error(lines, index, number)
        if self._by_the_way(part, number, bool(error)):
            return
        if ERROR.search(part.whole) and not QUIET.search(part.whole):
            seen.last_error = line
            victim = sign is not None and sign.weight == Weight.VICTIM
            if not victim and len(seen.errors) < _MOST_ERRORS and self._budget.keep():
                seen.errors.append(line)
        seen.traced = seen.traced or bool(FRAME.search(part.whole))
        if sign is None and (not error or WRAPPERS.search(exception[1] if exception else "")):
            return
        if sign is None and REFERS_ELSEWHERE.search(error):
            return
        if sign is not None and sign.weight == Weight.VICTIM:
            seen.victims += 1
        self._keep(sign, part, line, error, lines, index)

    def _note(self, lines: dict[str, int], rank: str, number: int) -> None:
        """Note that what a line said about a rank applies to the next lines, up to _BEHIND of them."""
        if len(lines) < _MOST_RANKS:
            lines[rank] = number + _BEHIND

    def _after_frames(self, part: LogLine, lines: list[bytes], index: int) -> re.Match[str] | None:
        """This line as an exception (of any name), if the lines before it are its traceback."""
        exception = ANY_CLASS.match(part.text)
        if exception is None or not self._place(lines, index, part.rank)[1]:
            return None
        for raw in reversed([*self._before, *lines[max(0, index - _BEHIND) : index]]):
            before = self._plain(raw)
            if before.rank in ("", part.rank) and before.text:
                return exception if before.text.startswith("  ") else None
        return None

    def _words_of(self, exception: re.Match[str], lines: list[bytes], index: int) -> str:
        """The words of an exception; from the next line if they begin there; for a bare assert, its source line."""
        words = exception[2] or ""
        if exception[0].rstrip() == "AssertionError" and index:
            return self._at(lines, index - 1 - (b"^^" in lines[index - 1])).text.partition("    ")[2]
        if words or not exception[0].rstrip().endswith(":"):
            return words
        after = self._at(lines, index + 1).text.strip()
        return "" if after.startswith(("File ", "Traceback", "--", "==")) else after

    def _at(self, lines: list[bytes], index: int) -> LogLine:
        """The line at this index, without its prefix; empty after the last line."""
        return self._plain(lines[index] if index < len(lines) else b"")

    def _wraps(self, error: str, lines: list[bytes], index: int) -> bool:
        """Whether an exception only wraps the traceback of another one, which is the real error.

        That is so if its words end with a colon, or if the traceback that follows says that it is quoted. A traceback
        that another process prints begins without that.
        """
        after = [self._at(lines, index + place) for place in (1, 2)]
        announced = error.endswith(":") and any(TRACEBACK.match(part.text) for part in after)
        # In torch before 1.2, the words of a data loader's error begin with the traceback itself.
        return announced or error.endswith("last):") or bool(INNER.search(after[0].whole))

    def _last_error(self, lines: list[bytes], index: int, number: int) -> None:
        """Note the line after `Last error:`, which is the reason for another error."""
        part = self._at(lines, index + 1)
        if (words := part.text.strip()) and self._budget.keep():
            self.reading.hits.append(Hit(REASON, self._line(part, number + 1), rank=part.rank, caught=(words,)))

    def _count(self, part: LogLine) -> None:
        """Note the rank that wrote a line, and how many ranks the run has, if the line says it."""
        if (rank := _RANK_NUMBER.fullmatch(part.rank)) and len(self.reading.ranks) < _MOST_RANKS:
            self.reading.ranks.add(int(rank[1]))
        if world := _WORLD.search(part.whole):
            self.reading.world = max(self.reading.world, int(world[1]))

    def _store(self, text: str, line: Line) -> None:
        """Note failed calls to a store, and whether it was the rendezvous store."""
        seen = self.reading
        called = bool(STORE.search(text))
        called_too = any(pattern.search(text) for pattern in (UNKNOWN_NAME, NOT_REACHED, NO_FAMILY))
        if (called or called_too) and len(seen.calls) < _MOST_CALLS and self._budget.keep():
            seen.calls.append(line)
        if "DistNetworkError:" in text:
            self._inner = called
        if RENDEZVOUS_FAILED in text and (seen.calls if self._inner is None else self._inner):
            seen.at_rendezvous = True

    def _keep(self, sign: Sign | None, part: LogLine, line: Line, error: str, lines: list[bytes], index: int) -> None:
        key = (id(sign), part.rank)
        full = len(self.reading.hits) >= _MOST_HITS or len(self._hit_counts) >= _MOST_RANKS
        if full or self._hit_counts.get(key, 0) >= _SAME_SHAPE * 2 or not self._budget.keep(2):
            return
        self._hit_counts[key] = self._hit_counts.get(key, 0) + 1
        time, frame = self._place(lines, index, part.rank)
        if sign is None and frame.endswith("/subprocess.py") and NO_PROGRAM.pattern.match(error):
            sign = NO_PROGRAM
        if sign is not None:
            sign = refined(sign, part.whole, frame)
        if sign is None and not error:
            return
        sign = sign or sign_by_words(error)
        caught: tuple[str, ...] = ()
        if sign is not None and (match := sign.pattern.search(part.whole)):
            caught = tuple(group for group in match.groups() if group)
        warned = sign is not None and bool(QUIET.search(part.whole)) and not LOUD.search(part.whole)
        thread = self._threads.pop(part.rank, 0) if error else 0
        plain = bool(error) and (sign is None or sign.weight < Weight.CAUSE)
        quiet = warned or line.number <= thread or (plain and self._wraps(error, lines, index))
        self.reading.hits.append(Hit(sign, line, time, part.rank, frame, caught, error, quiet))

    def _place(self, lines: list[bytes], index: int, rank: str) -> tuple[float | None, str]:
        """The time of a line, and the innermost file in the rank's traceback before it; either may be unknown."""
        time, frame = None, ""
        before = [*self._before, *lines[max(0, index - _BEHIND) : index + 1]]
        for line in before[: -_BEHIND - 1 : -1]:
            text = line[:LONGEST].decode(errors="replace")
            if time is None:
                time = time_of(text)
            if not frame and 'File "' in text:
                part = split_line(text)
                file = FRAME.search(part.text)
                frame = file[1] if file and part.rank in ("", rank) else ""
            if time is not None and frame:
                break
        return time, frame

    def _reported(self, part: LogLine, line: Line) -> bool:
        """Note what a launcher reports about an ended process. Returns whether the line is only part of its report."""
        seen = self.reading
        field, root = self._report.take(part.text, line)
        if root is None and not field:
            root = ended(part.text, part.whole, line)
        if root is not None and len(seen.roots) < _MOST_HITS and self._budget.keep():
            seen.roots.append(root)
        wait = wait_of(part.whole, line)
        if wait is not None and len(seen.waits) < _MOST_WAITS and self._budget.keep():
            seen.waits.append(wait)
        return field

    def _by_the_way(self, part: LogLine, number: int, exception: bool) -> bool:
        """Whether an exception comes from a destructor, or from the code that reports errors."""
        # The announcement may have been noted without a rank, before a traceback showed the prefix with the rank.
        rank = part.rank if part.rank in self._aside else ""
        if exception and number <= self._aside.get(rank, 0):
            del self._aside[rank]
            return True
        return False

    def _ends(self, lines: list[bytes], start: int) -> None:
        """Note the last line of a chunk, and the last time in it."""
        seen = self.reading
        for index in range(len(lines) - 1, max(-1, len(lines) - 200), -1):
            if b":" not in lines[index] and seen.last is not None and seen.last.number > start + index:
                continue  # a line without a colon has no time, and the last line is noted already
            state = lines[index].rstrip(b"\r").rpartition(b"\r")[2]  # the last state of a progress bar
            part = split_line(state[-LONGEST:].decode(errors="replace"))
            if not part.whole.strip():
                continue
            if seen.last is None or seen.last.number < start + index + 1:
                seen.last = self._line(part, start + index + 1)
            time = time_of(part.whole)
            if time is not None:
                seen.last_time = time
                return

    def _last_losses(self, lines: list[bytes], start: int) -> None:
        """Note whether the last two losses in a chunk are not numbers."""
        first = max(0, len(lines) - _LAST_LINES)
        shown = [(first + index, loss[1]) for index, line in enumerate(lines[first:]) if (loss := _LOSS.search(line))]
        if shown:
            self.reading.nan = None
            if len(shown) > 1 and all(value[:1] in b"nNiI" for _, value in shown[-2:]):
                index = shown[-1][0]
                part = split_line(lines[index][:LONGEST].decode(errors="replace"))
                self.reading.nan = self._line(part, start + index + 1)
