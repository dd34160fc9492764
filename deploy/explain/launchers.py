"""Read what launchers report about ended processes: torchrun, spawn, Lightning, mpirun, srun, Horovod, compose. Pure.

Once a process has failed, a launcher ends the others. It reports SIGTERM for those, or nothing: they are left out here.
"""

from __future__ import annotations

import re
import signal

from ..core.errors import SIGNALLED
from ..core.facts import SIGNALS
from .lines import time_of
from .reading import Line, Root
from .words import compile_limited

_NODE = r"(?P<host>[\w.-]{1,80})"
_END_LINES = (
    compile_limited(r"failed \(exitcode: (?P<code>-?\d+)\) local_rank: (?P<local>\d+)"),
    compile_limited(
        r"\bprocess (?P<process>\d+) terminated with (?:signal (?P<signal>SIG[A-Z]+)|exit code (?P<code>-?\d+))"
    ),
    compile_limited(r"-- Process (?P<process>\d+) terminated with the following error"),
    compile_limited(rf"process rank (?P<rank>\d+) with PID \S+ on node {_NODE} exited on signal (?P<number>\d+)"),
    compile_limited(r"Process name: (?:\[\[\d+,\d+\],)?(?P<rank>\d+)\]?$"),
    compile_limited(
        rf"srun: error: {_NODE}: tasks? (?P<task>\d+)[\d,-]*: "
        r"(?:Exited with exit code (?P<code>\d+)|(?P<word>Killed|Out Of Memory|Segmentation fault|Aborted|Bus error))"
    ),
    compile_limited(r"\[rank: (?P<rank>\d+)\] Child process with PID \d+ terminated with code (?P<code>-?\d+)"),
    compile_limited(rf"srun: error: Node failure on {_NODE}"),
    compile_limited(r"--local[-_]rank=(?P<local>\d+).{0,3000}\bexits with return code = (?P<code>-?\d+)"),
    compile_limited(r"collective timeout from +rank (?P<rank>\d+)"),
    compile_limited(r"[Rr]anks? (?P<rank>\d+)(?:, \d+)* failed to pass monitoredBarrier"),
    compile_limited(r"^(?P<container>[\w.-]{1,80}) exited with code (?P<code>[1-9]\d*)$"),
)
# The numbers of signals, by their names and by srun's words.
_NUMBERS = {name: number for number, name in SIGNALS.items()}
_NUMBERS |= {"Killed": 9, "Out Of Memory": 9, "Segmentation fault": 11, "Aborted": 6, "Bus error": 7}
_ENDED_BY_LAUNCHER = (-signal.SIGTERM, -signal.SIGINT, SIGNALLED + signal.SIGTERM)
_HEADING = compile_limited(r"Root Cause \(first observed failure\)|Root Cause:")
_OTHERS = compile_limited(r"^\W*Failures:$")
_FIELD = compile_limited(r"^\W*(time|host|rank|exitcode|error_file|traceback)\s*: ?(.*)$")
_FIELDS, _LONGEST, _MOST = 6, 2000, 20_000  # fields per entry; lines per report, and of all reports together


def ended(text: str, whole: str, line: Line) -> Root | None:
    """The failed process that this line reports; None if it reports none, or one that the launcher itself ended."""
    for pattern in _END_LINES:
        match = pattern.search(text)
        if match:
            parts = match.groupdict()
            code = _code(parts)
            if code in _ENDED_BY_LAUNCHER:
                return None
            return Root(_who(parts), parts.get("host") or "", code, time_of(whole), line=line)
    return None


class Report:
    """A reader for torchrun's report of failures, whose entries are lines with a field each.

    ranks: the ranks of all entries, including those that torchrun itself ended.
    """

    def __init__(self) -> None:
        self._fields: dict[str, str] = {}
        self._named = False
        self._until = 0
        self._line: Line | None = None
        self._left = _MOST
        self.ranks: set[int] = set()

    @property
    def open(self) -> bool:
        """Whether the report has begun and not ended."""
        return self._until > 0 and self._left > 0

    def take(self, text: str, line: Line) -> tuple[bool, Root | None]:
        """Take a line. Returns whether it is a heading or field of the report, and the failure that it completes."""
        heading = _HEADING.search(text)
        if heading or _OTHERS.match(text):
            root = self._complete()
            self._named, self._until = bool(heading), line.number + _LONGEST
            return True, root
        if not self.open:
            return False, None
        self._left -= 1
        if text.startswith("=====") or line.number > self._until:
            root = self._complete()
            self._until = 0
            return False, root
        field = _FIELD.match(text)
        if not field:
            return False, None
        root = self._complete() if field[1] in self._fields else None
        self._fields[field[1]] = field[2].strip()
        if field[1] == "exitcode":
            self._line = line
        if root is not None:
            return True, root
        return True, self._complete() if len(self._fields) == _FIELDS else None

    def end(self) -> Root | None:
        """The last failure, if the output ends in the middle of its entry."""
        return self._complete()

    def _complete(self) -> Root | None:
        fields, self._fields = self._fields, {}
        if not fields:
            return None
        rank = re.match(r"\d{1,6}", fields.get("rank", ""))
        if rank:
            self.ranks.add(int(rank[0]))
        code = re.match(r"-?\d{1,6}", fields.get("exitcode", ""))
        number = int(code[0]) if code else None
        if number in _ENDED_BY_LAUNCHER:
            return None
        name = f"rank {rank[0]}" if rank else ""
        local = re.search(r"local_rank: (\d{1,4})\b", fields.get("rank", ""))
        return Root(
            name,
            fields.get("host", "")[:80],
            number,
            time_of(fields.get("time", "")),
            self._named,
            self._line,
            int(local[1]) if local else None,
        )


def _who(parts: dict[str, str | None]) -> str:
    names = {"rank": "rank", "local": "local rank", "process": "process", "task": "task", "container": "container"}
    return next((f"{name} {parts[key]}" for key, name in names.items() if parts.get(key)), "")


def _code(parts: dict[str, str | None]) -> int | None:
    """The exit code; a signal is below 0, also if a shell reported it as 128 plus its number."""
    if name := parts.get("signal") or parts.get("word"):
        return -_NUMBERS[name] if name in _NUMBERS else None
    if parts.get("number"):
        return -int(parts["number"] or 0)
    digits = parts.get("code")
    code = int(digits) if digits else None
    return SIGNALLED - code if code is not None and SIGNALLED < code < SIGNALLED + 32 else code
