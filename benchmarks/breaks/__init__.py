"""A real run is broken on purpose: what breaks it, who is the culprit, and which words describe the cause.

`python -m benchmarks.breaks` tries them; the faults are in ends, raises, stalls, collectives, slow, harmless, together
and hosts.

A fault is code that one rank runs (`inside`), or an action on hosts and their engines (`outside`). The expected words
were written by somebody who knows the fault, before any fault was tried.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from lab.rack import Rack

# What the first line about a fault must contain, for each cause.
CAUSES = {
    "killed": r"killed by SIG\w+|terminated by signal",
    "container memory": r"out of memory in its container",
    "host memory": r"out of memory on its host",
    "exception": r"(?:Error|Exception)\b",
    "left": r"\bleft\b|without an exception|code 3",
    "stopped": r"is stopped|is paused",
    "locked": r"is stuck|waits for a lock|waits for its DataLoader|computes without|holds the Python interpreter",
    "mismatch": r"do not agree|different places|mismatch",
    "node lost": r"is lost|is gone|out of sight|cannot be reached|engine there does not answer|was killed by SIGKILL",
    "cut off": r"cut off",
    "disk": r"[Nn]o space|disk|quota",
    "slow": r"is slow",
    "weights": r"(?:other|different) weights",
    "nan": r"\bnan\b",
    "interrupt": r"KeyboardInterrupt|SIGINT|interrupted",
    "other program": r"another program|runs \w+ instead",
    "out of reach": r"out of sight|SSH|not reach|cannot be reached|no route|out of reach",
    "ended": r"was ended|shut down|stopped|SIGTERM",
    "reset": r"[Cc]onnection (?:was )?reset|lost (?:its|the) connection",
    "gone": r"No such file|is gone|deleted|removed",
    "interrupted": "KeyboardInterrupt|SIGINT",
    "quit": "BdbQuit",
    "its-words": "no licence for this host",
    "unnamed signal": r"killed by (?:SIG\w+|signal 40)|terminated by signal",
    "warning": r"UserWarning: `lr_scheduler",
    "frozen": r"is stopped|is paused|is frozen|is stuck",
    "engine hangs": r"engine there does not answer|out of sight|cannot be reached|is lost",
    "watchdog": r"Timeout \(|[Ww]atchdog|\bcode 1\b|faulthandler",
    "broken pool": r"BrokenProcessPool",
    "in the kernel": r"uninterruptible|[Ss]tate D|in the kernel|file (?:system|server)|\bI/O\b|vfork",
    "again": r"started again|started itself|replaced|\bexec",
    "fatal": r"Fatal Python error|called with(?:out)? the GIL",
    "arguments": r"\bcode 2\b|SystemExit|unrecognized arguments",
    "code one": r"\bcode 1\b",
    "expired": r"TimeoutExpired|timed out",
    "half gone": r"[Zz]ombie|defunct|main thread (?:is gone|has ended|ended|left)",
    "not in step": r"do not agree|different places|mismatch|doesn.t match|other gradients",
    "float64": r"float64|[Dd]ouble|doesn.t match",
    "bad zip": r"BadZipFile|not a zip file",
    "no batch left": r"StopIteration",
    "unknown name": r"gaierror|[Nn]ame or service|[Nn]ame resolution|No address associated",
    "empty queue": r"\bEmpty\b",
    "code 255": r"\bcode (?:255|-1)\b",
    "its words on the shard": r"shard 3.{0,6}is bad",
    "not finite": r"\b[Ii]nf(?:inite|inity)?\b|(?:not|non)[- ]?finite",
    "decoy": r"(?!)",  # no words about it are right
    "harmless": r"(?!)",  # only silence is right
}


SCRIPT, TRAINER = ("script",), ("trainer",)
Act = Callable[[Rack, str, str], object]


@dataclass(frozen=True)
class Fault:
    """One fault. `culprit`: `rank`, `host`, or `pair` (the culprit's host and the next one); `cause`: keys of CAUSES.

    `kinds`: `script` (plain DDP), `trainer` (Muster's own). `big`: the model has 8 MB. `mend` undoes `outside`. An
    action gets the hosts, the run and the culprit's host. `then` is another rank's fault, `gap_s` seconds later.
    """

    name: str
    culprit: str
    cause: tuple[str, ...]
    inside: str = ""
    outside: Act | None = None
    mend: Act | None = None
    before: Act | None = None
    kinds: tuple[str, ...] = (*SCRIPT, *TRAINER)
    job: str = ""
    big: bool = False
    first: bool = False
    limit_s: float = 60.0
    then: Fault | None = None
    gap_s: float = 2.0

    @property
    def needs_hosts(self) -> bool:
        """Whether it needs hosts."""
        return bool(self.outside or self.before or self.job)


FAULTS: dict[str, Fault] = {}


def break_rank(name: str, causes: str, inside: str, **more: Any) -> None:
    """Add a fault of one rank: the code that the rank runs, and the causes that describe it."""
    FAULTS[name] = Fault(name, "rank", tuple(causes.split(", ")), inside.strip("\n"), **more)


def break_script(name: str, causes: str, inside: str, **more: Any) -> None:
    """Add a fault of one rank of a script: it does not apply to Muster's own trainer."""
    break_rank(name, causes, inside, kinds=SCRIPT, **more)


def break_host(name: str, causes: str, outside: Act | None, culprit: str = "host", **more: Any) -> None:
    """Add a fault of a rack host, or of a pair of hosts."""
    FAULTS[name] = Fault(name, culprit, tuple(causes.split(", ")), outside=outside, **more)


def break_two(first: str, then: str, gap_s: float, **more: Any) -> None:
    """Add a fault of one rank, and another fault of another rank `gap_s` seconds later: either may be named.

    If the first fault makes its rank hang, the gap is 0: a rank that waits for it would never reach its own fault.
    """
    name = f"{first}, then {then}"
    FAULTS[name] = replace(FAULTS[first], name=name, then=FAULTS[then], gap_s=gap_s, **more)
