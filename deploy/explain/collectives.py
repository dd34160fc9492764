"""Who is missing in a collective, from what the watchdog of each rank says: its number, its kind, its size. Pure.

The ranks that report a timeout wait. The one that they wait for is at an earlier collective, or reports another one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..core.text import ranks_in_words
from .patterns import compiled
from .reading import Line, Wait

_NEAR = 3
_SAME_SIZE = ("ALLREDUCE", "BROADCAST", "_ALLGATHER_BASE", "_REDUCE_SCATTER_BASE", "REDUCE")
_WAITS = compiled(
    r"\[(?:PG (?P<group>[^\]]{0,80}?) )?Rank (?P<rank>\d+)\].{0,80}?[Ww]atchdog caught collective operation "
    r"timeout: WorkNCCL\(SeqNum=(?P<number>\d+), OpType=(?P<kind>\w+)(?:, NumelIn=(?P<size>\d+))?"
)
_PRINT = compiled(
    r"\[Rank (?P<rank>\d+)\].{0,60}CollectiveFingerPrint\(SequenceNumber=(?P<number>\d+), ?OpType=(?P<kind>\w+)"
)


def wait_of(text: str, line: Line) -> Wait | None:
    """The collective in which this line says that a rank waits."""
    match = _WAITS.search(text) or _PRINT.search(text)
    if match is None:
        return None
    parts = match.groupdict()
    group, size = parts.get("group") or "", parts.get("size") or ""
    return Wait(int(parts["rank"]), group, int(parts["number"]), parts["kind"], size, line)


def odd_ones(waits: Sequence[Wait]) -> tuple[str, str, tuple[Line, ...]] | None:
    """(ranks, what they do otherwise, evidence), if fewer than half of the ranks differ from the others."""
    latest = {(wait.rank, wait.group): wait for wait in waits}
    groups: dict[str, list[Wait]] = {}
    for wait in latest.values():
        groups.setdefault(wait.group, []).append(wait)
    for group, ranks in sorted(groups.items()):
        numbers = Counter(wait.number for wait in ranks)
        usual = numbers.most_common(1)[0][0]
        behind = sorted((wait for wait in ranks if wait.number < usual), key=lambda wait: wait.rank)
        # Lines without a group may be of several groups, whose numbers have nothing to do with each other.
        near = group or all(usual - wait.number <= _NEAR for wait in behind)
        if behind and near and len(behind) * 2 < len(ranks) + (len(ranks) == 2):
            what = f"at collective {behind[0].number} ({behind[0].kind}), where the others wait in number {usual}"
            other = next(wait for wait in ranks if wait.number == usual)
            return ranks_in_words(wait.rank for wait in behind), what, (behind[0].line, other.line)
        same = [wait for wait in ranks if wait.number == usual]
        kinds = Counter((wait.kind, wait.size if wait.kind in _SAME_SIZE else "") for wait in same)
        if len(kinds) > 1 and (group or usual > _NEAR):
            most = kinds.most_common(1)[0][0]
            odd = sorted(
                (w for w in same if (w.kind, w.size if w.kind in _SAME_SIZE else "") != most), key=lambda w: w.rank
            )
            other = next(wait for wait in same if wait not in odd)
            what = f"in {_call(odd[0].kind, odd[0].size)}, where the others are in {_call(*most)}, both number {usual}"
            return ranks_in_words(wait.rank for wait in odd), what, (odd[0].line, other.line)
    return None


def _call(kind: str, size: str) -> str:
    return f"{kind} of {size} numbers" if size else kind
