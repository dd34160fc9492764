"""The kinds of signs, and a function to write each: one row of the tables beside this file. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import IntEnum

from ...core.errors import SIGNALLED
from ..words import compiled

PREFLIGHT = "muster preflight --hosts ..."
GPUS = "muster gpus --hosts ..."
ALONE = "torchrun --nproc-per-node 1 SCRIPT"
KERNEL = "dmesg -T | tail -50"
NCCL_DEBUG = "NCCL_DEBUG=INFO torchrun ..."
BLOCKING = "CUDA_LAUNCH_BLOCKING=1 torchrun ..."


class Weight(IntEnum):
    """How much a sign says about why a run ended."""

    REASON = -1  # no sign of its own: it is why another line says that something failed
    VICTIM = 0  # another one failed
    HINT = 1  # it may be harmless: it counts only if nothing else does
    GENERAL = 2  # it ends a run, but says little: a CAUSE near it is better
    CAUSE = 3


@dataclass(frozen=True)
class Sign:
    """Words that show `cause` (empty: they have several, of which none is sure). what: for a person; {0} is what
    the pattern matched.

    next: a command. maybe: causes with the same words. script: the script is at fault, not its environment.
    absent: what `what` goes on with where nothing in the output gives the reason; with a reason, that is quoted.
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
    """A pattern for all ways in which launchers say that a signal ended a process."""
    return (
        rf"exitcode\s*: -{number}\b|[Ss]ignal:? {number}\b|\({name}\)|[Ss]ignal {name}|Signals\.{name}\b|"
        rf"\*\*\* {name} (?:received (?:at|by)\b|\(@0x)|"  # absl and glog
        rf"return(?:ed)? (?:code|value):? ?=? ?-{number}\b|EXIT CODE: {SIGNALLED + number}\b|"
        rf"(?i:exit(?:ed)?(?: with)?(?: exit)? (?:code|status)|terminated with code|\bcode)[:=]? ?"
        rf"(?:-{number}|{SIGNALLED + number})\b"
    )


def sign(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """Words of one cause, or of a few."""
    return Sign(cause, compiled(pattern), what, then, maybe)


def general(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """Words that end a run but say little about the reason."""
    return Sign(cause, compiled(pattern), what, then, maybe, Weight.GENERAL)


def several(pattern: str, what: str, then: str, *maybe: str) -> Sign:
    """Words that end a run and that several causes have: none of them is stated, all are named."""
    return general("", pattern, what, then, *maybe)


def hint(cause: str, pattern: str, what: str, then: str = PREFLIGHT, *maybe: str) -> Sign:
    """Words that may be harmless."""
    return Sign(cause, compiled(pattern), what, then, maybe, Weight.HINT)


def script(cause: str, pattern: str, what: str, then: str, *maybe: str) -> Sign:
    """Words of a fault of the script itself."""
    return Sign(cause, compiled(pattern), what, then, maybe, script=True)


def victim(pattern: str, what: str = "", cause: str = "", then: str = NCCL_DEBUG) -> Sign:
    """Words of a rank that lost another rank."""
    return Sign(cause, compiled(pattern), what, then, (), Weight.VICTIM)
