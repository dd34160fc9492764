"""The kinds of signs, with a function for each that makes a row of the tables in this folder. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from ...core.errors import SIGNALLED
from ..words import compile_limited

PREFLIGHT = "muster preflight --hosts ..."
GPUS = "muster gpus --hosts ..."
ALONE = "torchrun --nproc-per-node 1 SCRIPT"
KERNEL = "dmesg -T | tail -50"
NCCL_DEBUG = "NCCL_DEBUG=INFO torchrun ..."
BLOCKING = "CUDA_LAUNCH_BLOCKING=1 torchrun ..."


class Weight(IntEnum):
    """How much a sign says about why a run ended."""

    REASON = -1  # not a sign by itself: it gives the reason for a failure that another line reports
    VICTIM = 0  # another rank failed
    HINT = 1  # it may be harmless: it counts only if nothing else does
    GENERAL = 2  # it ends a run but says little about why: a CAUSE near it is preferred
    CAUSE = 3


@dataclass(frozen=True)
class Sign:
    """Words in an output that show `cause` (empty: several causes are possible, and none is certain).

    what: the explanation for a person; {0} is the pattern's first captured text. next: a command to type next. maybe:
    other causes of the same words. script: the script is at fault, not its environment. absent: how `what` continues if
    the output gives no reason; if it does, the reason is quoted instead.
    """

    cause: str
    pattern: re.Pattern[str]
    what: str
    next: str = PREFLIGHT
    maybe: tuple[str, ...] = ()
    weight: Weight = Weight.CAUSE
    script: bool = False
    absent: str = ""


def ended(name: str, number: int) -> str:
    """A pattern for all ways in which launchers report that a signal ended a process."""
    return (
        rf"exitcode\s*: -{number}\b|[Ss]ignal:? {number}\b|\({name}\)|[Ss]ignal {name}|Signals\.{name}\b|"
        rf"\*\*\* {name} (?:received (?:at|by)\b|\(@0x)|"  # absl and glog
        rf"return(?:ed)? (?:code|value):? ?=? ?-{number}\b|EXIT CODE: {SIGNALLED + number}\b|"
        rf"(?i:exit(?:ed)?(?: with)?(?: exit)? (?:code|status)|terminated with code|\bcode)[:=]? ?"
        rf"(?:-{number}|{SIGNALLED + number})\b"
    )


def sign(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """A row for words that have one cause, or a few."""
    return Sign(cause, compile_limited(pattern), what, then, maybe)


def general(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """A row for words that end a run but say little about the reason."""
    return Sign(cause, compile_limited(pattern), what, then, maybe, Weight.GENERAL)


def several(pattern: str, what: str, then: str, *maybe: str) -> Sign:
    """A row for words that end a run and have several causes: none is stated as certain, and all are listed."""
    return general("", pattern, what, then, *maybe)


def hint(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """A row for words that may be harmless."""
    return Sign(cause, compile_limited(pattern), what, then, maybe, Weight.HINT)


def script(cause: str, pattern: str, what: str, then: str, *maybe: str) -> Sign:
    """A row for words that mean a fault of the script itself."""
    return Sign(cause, compile_limited(pattern), what, then, maybe, script=True)


def victim(pattern: str, what: str = "", cause: str = "", then: str = NCCL_DEBUG) -> Sign:
    """A row for words from a rank that lost another rank."""
    return Sign(cause, compile_limited(pattern), what, then, (), Weight.VICTIM)
