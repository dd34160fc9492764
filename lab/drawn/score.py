"""Mark preflight's answer on a draw, given what was done and what real torchrun did. Pure."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from deploy.causes.finding import FAULT, UNKNOWN, Finding
from deploy.preflight import Verdict
from lab import job
from lab.drawn.part import Part

CAUSE, OBSERVED, PLACE, WRONG, UNSURE, GREEN = "cause", "observed", "place", "wrong", "unsure", "green"
REFUSED, QUIET = "refused", "quiet"
RIGHT = (CAUSE, OBSERVED)
WORDS = {
    CAUSE: "right cause, right place",
    OBSERVED: "true observation, right place",
    PLACE: "right cause, another place",
    WRONG: "another cause, stated as sure",
    UNSURE: "could not tell, and nothing true first",
    GREEN: "green, and the run fails",
    REFUSED: "refused, and the run trains",
    QUIET: "let pass, and the run trains",
}


@dataclass(frozen=True)
class Mark:
    """The mark, and the parts that the first finding names correctly, as indices into the draw's parts."""

    word: str
    parts: tuple[int, ...] = ()


def mark(parts: Sequence[Part], truth: str, verdict: Verdict) -> Mark:
    """Mark a verdict. `truth`: what torchrun did. For a run that is only slow, a warning is as good as a fault."""
    first = verdict.first
    if truth == job.FINE:
        return Mark(REFUSED if first else QUIET)
    if first is None and truth == job.SLOW:
        first = next(iter(verdict.warnings), None)
    if first is None:
        return Mark(GREEN)
    meant = [(number, part) for number, part in enumerate(parts) if names(first) & (part.causes | part.seen)]
    here = _here(first, meant)
    if here:
        exact = any(names(first) & parts[number].causes for number in here)
        return Mark(CAUSE if exact else OBSERVED, here)
    if meant:
        return Mark(PLACE)
    return Mark(WRONG if first.level == FAULT else UNSURE if first.level == UNKNOWN else GREEN)


def names(finding: Finding) -> frozenset[str]:
    """The slugs that a finding states: its cause, and the first observation if it only describes."""
    return frozenset({finding.cause, *getattr(finding, "odd", ())[:1]})


def _here(first: Finding, meant: Sequence[tuple[int, Part]]) -> tuple[int, ...]:
    """The parts whose places are named, and no others: one finding may merge the same cause on several hosts."""
    said = {frozenset(first.hosts), *({frozenset(first.link)} if first.link else ())}
    for size in range(1, len(meant) + 1):
        for some in itertools.combinations(meant, size):
            for places in itertools.product(*(part.subjects for _, part in some)):
                if frozenset().union(*places) in said:
                    return tuple(number for number, _ in some)
    return ()


def interval(count: int, of: int) -> tuple[float, float]:
    """The 95 % interval of a share, by Wilson's formula."""
    if not of:
        return 0.0, 1.0
    z, share = 1.96, count / of
    middle, half = share + z * z / (2 * of), z * math.sqrt(share * (1 - share) / of + z * z / (4 * of * of))
    return max(0.0, (middle - half) / (1 + z * z / of)), min(1.0, (middle + half) / (1 + z * z / of))


def share(count: int, of: int) -> str:
    """A share as text, such as `45 of 50 (90 %, 79-96)`."""
    low, high = interval(count, of)
    return f"{count} of {of} ({100 * count / of:.0f} %, {100 * low:.0f}-{100 * high:.0f})" if of else "none drawn"
