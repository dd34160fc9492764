"""Tell victims from culprits: ranks that only lost a peer, silent ranks, and ranks missing in a collective. Pure.

A rank that hangs, or ends too early with code 0, prints no error. The launcher then sees another rank, which lost it,
fail first. For a collective, the watchdog of each waiting rank prints the call's number, kind and size: the rank that
they wait for is at an earlier number, or is in a call of another kind or size.
"""

from __future__ import annotations

import signal
from collections import Counter
from collections.abc import Sequence

from ..core.text import ranks_in_words
from .reading import Line, Reading, Root, Wait
from .signs.kinds import Weight
from .words import compile_limited

# Exit codes of a rank that lost a peer: it raises an exception, or NCCL's watchdog aborts it.
_ENDS = (None, 1, -signal.SIGABRT)
_MOST = 1 << 16


def is_victim(root: Root, readings: Sequence[Reading]) -> bool:
    """Whether the rank that a launcher saw fail first only printed messages about a lost peer."""
    own = [hit for reading in readings for hit in reading.hits if hit.rank and same_rank(root.rank, hit.rank)]
    return bool(own) and root.exitcode in _ENDS and all(hit.weight <= Weight.VICTIM for hit in own)


def mute_ranks(readings: Sequence[Reading]) -> str:
    """The ranks in the output, or in the world size, that have no error of their own, in words; empty if none.

    If only one rank has an error and the world size is unknown, the result is all ranks but that one.
    """
    named = {rank for reading in readings for rank in reading.ranks}
    world = max((reading.world for reading in readings), default=0)
    spoke = {int(hit.rank.split()[-1]) for reading in readings for hit in reading.hits if hit.rank.startswith("rank ")}
    mute = (named | set(range(min(world, _MOST)))) - spoke
    if spoke and mute:
        return ranks_in_words(mute)
    return f"the ranks other than {ranks_in_words(spoke)}" if len(spoke) == 1 and not world else ""


def same_rank(name: str, other: str) -> bool:
    """Whether two rank names (`rank 3`, `local rank 3`, `process 3`) have the same number."""
    return bool(name and other) and name.split()[-1] == other.split()[-1]


_NEAR = 3
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE")
_WAITS = compile_limited(
    r"\[(?:PG (?P<group>[^\]]{0,80}?) )?Rank (?P<rank>\d+)\].{0,80}?[Ww]atchdog caught collective operation "
    r"timeout: WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)(?:, NumelIn=(?P<size>\d+))?"
)
_PRINT = compile_limited(
    r"\[Rank (?P<rank>\d+)\].{0,60}CollectiveFingerPrint\(SequenceNumber=(?P<number>\d+), ?OpType=(?P<kind>\w+)"
)


def wait_of(text: str, line: Line) -> Wait | None:
    """The collective in which a rank waits, according to this line; None if the line does not report one."""
    match = _WAITS.search(text) or _PRINT.search(text)
    if match is None:
        return None
    parts = match.groupdict()
    group, size = parts.get("group") or "", parts.get("size") or ""
    return Wait(int(parts["rank"]), group, int(parts["number"]), parts["kind"], size, line)


def odd_ones(waits: Sequence[Wait]) -> tuple[str, str, tuple[Line, ...]] | None:
    """Return (ranks, what they do differently, evidence), if fewer than half of the ranks differ from the others."""
    latest = {(wait.rank, wait.group): wait for wait in waits}
    groups: dict[str, list[Wait]] = {}
    for wait in latest.values():
        groups.setdefault(wait.group, []).append(wait)
    for group, ranks in sorted(groups.items()):
        numbers = Counter(wait.number for wait in ranks)
        usual = numbers.most_common(1)[0][0]
        behind = sorted((wait for wait in ranks if wait.number < usual), key=lambda wait: wait.rank)
        # Lines without a group may come from several groups, whose numbers are not related.
        near = group or all(usual - wait.number <= _NEAR for wait in behind)
        if behind and near and len(behind) * 2 < len(ranks) + (len(ranks) == 2):
            what = f"at collective {behind[0].number} ({behind[0].kind}), while the others wait in number {usual}"
            other = next(wait for wait in ranks if wait.number == usual)
            return ranks_in_words(wait.rank for wait in behind), what, (behind[0].line, other.line)
        same = [wait for wait in ranks if wait.number == usual]
        kinds = Counter(map(_kind, same))
        if len(kinds) > 1 and (group or usual > _NEAR):
            most = kinds.most_common(1)[0][0]
            odd = sorted((wait for wait in same if _kind(wait) != most), key=lambda wait: wait.rank)
            other = next(wait for wait in same if wait not in odd)
            what = (
                f"in {_call(odd[0].kind, odd[0].size)}, while the others are in {_call(*most)}, both as number {usual}"
            )
            return ranks_in_words(wait.rank for wait in odd), what, (odd[0].line, other.line)
    return None


def _kind(wait: Wait) -> tuple[str, str]:
    """What must be the same for all ranks in a collective: its kind, and for some kinds its size."""
    return wait.kind, wait.size if wait.kind in _SAME_SIZE else ""


def _call(kind: str, size: str) -> str:
    return f"{kind} of {size} elements" if size else kind
