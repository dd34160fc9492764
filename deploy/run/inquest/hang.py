"""Find which rank is missing while a run is stuck, by comparing what each rank does. Pure.

The agents report what their ranks do (contract.md: the event `stuck`, and trainer/node/ending/doing_now.py).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...core.fields import array, default, flag, optional, record, text, whole, words
from ...core.names import node_name
from ...core.text import in_seconds, ranks_in_words
from ...job.options import FLAG
from ..events import DOING
from . import collectives
from .collectives import Call

# docs/explanation/watching.md: a rank that is stuck has made no step for longer than this.
_MOVES_S = 5.0
# What a rank is doing when it waits for other ranks.
_WAITS = ("collective", "backward")
_STUCK_WORDS = {
    "stopped": "is stopped by a signal (SIGSTOP)",
    "traced": "is stopped by a debugger",
    "frozen": "is frozen with its cgroup",
    "disk": "waits for a disk that does not answer",
    "locked": "is in native code that holds the Python interpreter lock",
    "data": "waits for its DataLoader",
    "lock": "waits for a lock, or for a process of its own",
    "script": "is stuck",
    "computes": "computes without a pause",
    "polls": "is stuck: it polls with short pauses",
    "replaced": "runs another program",
    "ended": "has ended",
    "unseen": "is stuck and does not answer when Muster looks",
    "unobserved": f"is not observed ({FLAG.no_observe})",
}
# The words for a rank that moves.
_MOVING_WORDS = {"data": "is in its DataLoader", "lock": "is in a lock", "script": "runs", "backward": "is in backward"}
_REPORTED = {"doing": default(text(20, "[a-z]+"), "unseen"), "moves": optional(flag)}
_STACK = {"stack": default(array(words(300), 100), list[str]())}
_RANK_REPORT = record({"rank": whole(65535), "node": default(node_name, "")}, {**DOING, **_REPORTED, **_STACK})


@dataclass(frozen=True)
class RankDoing:
    """What one rank does, in the agent's words; at which line of the script; for how long it has made no step.

    `moves`: its last step is not unusually long ago, so it is not to blame for anything. `error`: an exception of its
    main thread after which the process did not end; `thread_error`: the exception of another thread. `program`: the
    program that runs in place of the script. `tracer`: the debugger that holds the rank. `disk`: the file and the file
    system that it waits for.
    """

    rank: int
    node: str
    doing: str
    file: str = ""
    line: int = 0
    function: str = ""
    since_s: float = 0.0
    step: int = 0
    stack: tuple[str, ...] = ()
    op: str = ""
    collectives: tuple[Call, ...] = ()
    moves: bool = False
    error: str = ""
    thread_error: str = ""
    program: str = ""
    tracer: str = ""
    disk: str = ""

    @property
    def place(self) -> str:
        """`train.py:88 forward()`, or empty if the line is not known."""
        return _place(self)


def read(value: object) -> RankDoing:
    """Read an agent's report about a rank. Raises BadAnswer."""
    fields = _RANK_REPORT(value, "")
    known: dict[str, Any] = {name: fields[name] for name in RankDoing.__dataclass_fields__ if name in fields}
    if fields.get("moves") is None:  # an older image does not report it; after less than _MOVES_S no rank is stuck
        known["moves"] = "since_s" in fields and fields.get("doing") != "locked" and fields["since_s"] < _MOVES_S
    known |= {"doing": fields.get("doing", "unseen"), "stack": tuple(fields.get("stack", ()))}
    return RankDoing(**{**known, "collectives": collectives.calls(fields.get("collectives", ()))})


def verdict(ranks: Iterable[RankDoing]) -> str:
    """A sentence about which rank is missing, and which ranks wait for it."""
    return judge_stuck(ranks)[0]


def judge_stuck(ranks: Iterable[RankDoing]) -> tuple[str, bool]:
    """A sentence about which rank is missing and which wait for it; and whether the ranks disagree on their calls."""
    ranks = sorted(ranks, key=lambda rank: rank.rank)
    absent = [rank for rank in ranks if rank.doing not in _WAITS]
    waiting = [rank for rank in ranks if rank.doing in _WAITS]
    if absent:
        heads = "; ".join(_missing(rank) for rank in absent[:3])
        more = f"; and {len(absent) - 3} more" if len(absent) > 3 else ""
        return f"{heads}{more}{_waiters(waiting)}", False
    if differ := collectives.disagreement({rank.rank: rank.collectives for rank in waiting}):
        return disagreement(differ), True
    places = _by_place(waiting)
    fewest = sorted(places.items(), key=lambda pair: len(pair[1]))[:3]
    parts = "; ".join(f"{_names(group)} in {_what(group[0])}, {place}" for place, group in fewest)
    if len({rank.op for rank in waiting if rank.doing == "collective"}) > 1:
        return f"the ranks do not agree on the next collective: {parts}", True
    if len(places) > 1:
        return f"the ranks wait for each other in different places: {parts}", True
    place = next(iter(places), "")
    where = f"{_what(waiting[0])}, {place}" if waiting else "nothing that Muster can see"
    if waiting and waiting[0].op == "init_process_group":
        look = "does the script set its own address (tcp://...) or rank? env:// has both; otherwise check the links"
        return f"all ranks wait in {where}, and none is missing; {look}", False
    return f"all ranks wait in {where}, and none is missing, so check the links between them", False


def missing(ranks: Sequence[RankDoing]) -> str:
    """The verdict on the living ranks; empty while one of them moves, or if none waits for others."""
    living = [rank for rank in ranks if rank.doing not in ("ended", "unseen", "unobserved")]
    stands = len(living) > 1 and any(map(waits, living)) and not any(rank.moves for rank in living)
    return verdict(living) if stands else ""


def is_unlooked(rank: RankDoing) -> bool:
    """Whether the user has switched off the observation of the rank."""
    return rank.doing == "unobserved"


def waits(rank: RankDoing) -> bool:
    """Whether a rank only waits for others."""
    return rank.doing in _WAITS


def words_of(rank: RankDoing) -> str:
    """What one rank does, in a few words."""
    if rank.moves and (rank.doing in _MOVING_WORDS or waits(rank)):
        return _MOVING_WORDS.get(rank.doing, f"is in {_what(rank)}")
    if rank.doing == "script" and not rank.step:  # it may work, and make no step that Muster sees
        return "has made no step"
    if rank.doing == "unseen":  # it may have just begun, or may never train: nothing has shown that it is stuck
        return "answers no look"
    return f"waits for others in {_what(rank)}" if waits(rank) else _STUCK_WORDS.get(rank.doing, rank.doing)


def _missing(rank: RankDoing) -> str:
    place = f" in {rank.place}" if rank.place else ""
    who, since = f"rank {rank.rank}" + f" ({rank.node})" * bool(rank.node), f"for {in_seconds(rank.since_s)}"
    if rank.error:
        return f"{who} failed with {rank.error}, and has not ended {since}: its process waits for its other threads"
    program = f", {rank.program}, instead of the script" if rank.program else ""
    program += f" ({rank.tracer})" if rank.tracer else f": {rank.disk}," if rank.disk else ""
    after = f", after one of its threads failed with {rank.thread_error}" if rank.thread_error else ""
    return f"{who} {_STUCK_WORDS.get(rank.doing, rank.doing)}{program}{place} {since}{after}"


def _waiters(waiting: Sequence[RankDoing]) -> str:
    if not waiting:
        return ""
    groups = _by_place(waiting)
    place, group = max(groups.items(), key=lambda pair: len(pair[1]))
    return f"; {_names(waiting)} wait{'s' if len(waiting) == 1 else ''} for it in {_what(group[0])}, {place}"


def _by_place(ranks: Sequence[RankDoing]) -> Mapping[str, list[RankDoing]]:
    by_place: dict[str, list[RankDoing]] = defaultdict(list)
    for rank in ranks:
        by_place[rank.place or "an unknown place"].append(rank)
    return by_place


def disagreement(differ: Mapping[int, Call]) -> str:
    """A sentence about which ranks called what, instead of all calling the same collective."""
    groups = collectives.alike(differ)
    sized = len({call.name for _, call in groups}) < len(groups)
    parts = []
    for ranks, call in groups[:3]:
        size = f" of {call.size}" if sized and call.size else ""
        parts.append(
            f"{ranks_in_words(ranks)} called {call.name}{size}{f', {place}' if (place := _place(call)) else ''}"
        )
    return f"the ranks do not agree on the next collective: {'; '.join(parts)}"


def _place(rank: RankDoing | Call) -> str:
    if not rank.file:
        return ""
    function = "" if rank.function.startswith("<") or not rank.function else f" {rank.function}()"
    return f"{rank.file}:{rank.line}{function}"


def _what(rank: RankDoing) -> str:
    return "backward" if rank.doing == "backward" else rank.op or "a collective"


def _names(ranks: Sequence[RankDoing]) -> str:
    return ranks_in_words(rank.rank for rank in ranks)
