"""Find the rank that caused the end of a run, and the cause that the words of its error show. Pure.

Only the first cause is reported; its victims are listed by number. If it is unknown, the message says so and why.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter

from ...causes.end_causes import Cause
from ...core.errors import DONE
from ...core.text import ranks_in_words
from .causes import Finding
from .collectives import MISMATCH_WORDS

# Words in exceptions from Python, torch, CUDA and the system, by cause.
_TEXTS = (
    (
        Cause.DISK_FULL,
        r"\[Errno (?:28|122)\]|no space left on device|disk quota exceeded|no room on the disk|"
        r"pytorchstreamwriter failed writing|unexpected pos \d+ vs \d+",
    ),
    (Cause.GPU_MEMORY, r"outofmemoryerror|cuda out of memory|cudaerrormemoryallocation|alloc_failed"),
    (
        Cause.GPU_LOST,
        r"fallen off the bus|uncorrectable|gpu is lost|no cuda-capable device|cudaerrordevicesunavailable",
    ),
    (Cause.HOST_MEMORY, r"\[Errno 12\]|^memoryerror|defaultcpuallocator: can't allocate memory|cannot allocate memory"),
    (Cause.MISMATCH, MISMATCH_WORDS),
)


@dataclass(frozen=True)
class End:
    """How a rank ended, as its node's agent reports it: `how` in words. A `victim` lost a peer; `error` says how.

    `cause`: set if the agent knows it without an exception. `place`: where in the script the rank was.
    """

    rank: int
    node: str
    code: int
    t: float
    how: str = ""
    victim: bool = False
    error: str = ""
    cause: Cause | None = None
    place: str = ""

    @property
    def who(self) -> str:
        """`gpu-b (rank 1)`."""
        return f"{self.node} (rank {self.rank})"


# The order in which ranks ended.
by_time = attrgetter("t", "rank")


def cause_of_error(error: str) -> Cause:
    """The cause in the words of an exception."""
    return next((cause for cause, words in _TEXTS if re.search(words, error, re.IGNORECASE)), Cause.EXCEPTION)


def cause_of_end(end: End) -> Cause:
    """The cause of the end of a rank that is not a victim."""
    if end.cause:
        return end.cause
    if end.code < 0:
        return Cause.KILLED
    return cause_of_error(end.error) if end.code and end.error else Cause.LEFT_EARLY


def first_culprit(ends: Sequence[End]) -> End | None:
    """The first rank that failed, leaving out victims and ranks that were stopped after a victim had ended."""
    own = [end for end in ends if end.code and not end.victim and not was_stopped(end, ends)]
    return min(own, key=by_time, default=None)


def was_stopped(end: End, ends: Sequence[End]) -> bool:
    """Whether the rank ran until the run was stopped because another rank had lost a peer: it has no cause itself."""
    return end.cause is Cause.ENDED and any(other.victim and other.t < end.t for other in ends)


def blame(began: Mapping[int, str], ends: Sequence[End]) -> Finding | None:
    """The rank to blame; None if no rank failed. `began`: the node of each rank; `ends`: the last end of each rank."""
    if first := first_culprit(ends):
        error = f": {first.error}" if first.error else ""
        return Finding(cause_of_end(first), f"{first.who} {first.how}{error}", first.node, first.rank)
    victims = sorted((end for end in ends if end.victim), key=by_time)
    if not victims:
        return None
    first, lost = victims[0], ranks_in_words(end.rank for end in victims)
    left = [end for end in ends if end.code == DONE and end.t <= first.t]
    ended = {end.rank for end in ends if not was_stopped(end, ends)}
    still = {rank: node for rank, node in began.items() if rank not in ended}
    if left:
        early = min(left, key=by_time)
        text = f"left early, with code 0, while the others waited; {lost} lost it ({first.error})"
        return Finding(Cause.LEFT_EARLY, f"{early.who} {text}", early.node, early.rank)
    # The rank that notices a different size may itself be the odd one; a rank that still ran is not to blame for it.
    if odd := next((end for end in victims if re.search(MISMATCH_WORDS, end.error, re.IGNORECASE)), None):
        text = f"the ranks do not agree on a collective: {odd.who} {odd.how} ({odd.error.strip()})"
        text = f"{text}; Muster could not tell which of them is wrong"
        return Finding(Cause.MISMATCH, text)
    if len(still) == 1:
        ((rank, node),) = still.items()
        who = f"{node} (rank {rank})"
        if "reset by peer" in first.error:
            text = f"lost its connection to {who}: that host, or something between them, reset it"
            text = f"{first.who} {text} ({first.error})"
            return Finding(Cause.CUT_OFF, text, first.node, first.rank)
        text = f"did not answer: it hangs or cannot be reached; {lost} gave up on it ({first.error})"
        return Finding(Cause.NOT_KNOWN, f"{who} {text}", node, rank)
    if still:
        text = f"Muster could not tell which rank stopped answering: {lost} gave up ({first.error})"
        return Finding(Cause.NOT_KNOWN, f"{text}, {ranks_in_words(still)} kept running")
    text = f"Muster could not tell which rank failed: each lost another one; the first was {first.who} ({first.error})"
    return Finding(Cause.NOT_KNOWN, text)
