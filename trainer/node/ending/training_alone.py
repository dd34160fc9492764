"""Whether the ranks of a script train together, and the advice where they do not, for Lightning, Accelerate and torch.

It goes by what torch noted in them (trainer/node/rank/together.py). `Watch` tells it while they train,
`trained_alone` at the end.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.errors import DONE

from .. import variables
from ..notes import Journal
from . import own_world
from .rank_lives import Life

SITE = Path(__file__).parents[1] / "rank" / "site"
_EVERY_SECONDS = 1.0
# A group that joins nobody is told of after so long, as are ranks that wait where nobody comes; then these are ended.
_GROUP_SECONDS, _VAIN_SECONDS, _WAIT_SECONDS, _HOPELESS_SECONDS = 3.0, 6.0, 10.0, 45.0
# What a note may have: a script may write to the file as well.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("rank", "attempt", "size", "member", "pid", "taken", "kills", "group"), int),
    **dict.fromkeys(("store", "meets", "given", "at"), str),
    **dict.fromkeys(("loaded", "launch", "command", "shell"), list),
    "t": (int, float),
}

_BY_HAND = (
    "leave that out; if the script starts its own ranks, put `python` before its name, or use --each on several "
    "hosts, which fills in {master} and {port}"
)
_TORCH = (
    "the script must call torch.distributed.init_process_group() without an address, a rank or a world size, "
    "because torchrun's variables have them; `muster docs several-gpus` shows the lines"
)


def observed(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` so that every Python below notes what it forms. Last in line: a user's own goes before.

    A user who has switched that off gets the environment as it is.
    """
    if not variables.is_observed(environment):
        return dict(environment)
    return {**environment, "PYTHONPATH": ":".join(filter(None, (environment.get("PYTHONPATH"), str(SITE))))}


@dataclass(frozen=True)
class Alone:
    """Why a rank is alone, and what to change. `waits`: it trains not, but waits; `in_vain`: for long, for nobody."""

    why: str
    hint: str
    waits: bool = False
    in_vain: bool = False


class Watch:
    """Looks every second whether the ranks of a node train alone, or wait where no other node comes.

    `separate`: they may, and nothing is told. `script`: the words of the run's command. What counts is a rank whose
    optimizer still steps a while after its first step, or one that stepped in a group that joins nobody. `final`: the
    node's ranks have ended well in a world of their own, or wait in vain: the run cannot become what was asked.
    """

    def __init__(self, outcome: Path, separate: bool = False, script: Sequence[str] = ()) -> None:
        self._journal, self._separate, self._script = Journal(outcome), separate, script
        self._noted: list[dict[str, Any]] = []
        self._next = 0.0
        self._reported: dict[tuple[int, int], bool] = {}
        self._ended: list[tuple[int, int]] = []
        self.final: Alone | None = None

    def look(self, lives: Sequence[Life]) -> list[tuple[int, dict[str, Any]]]:
        """Ranks that by now train or wait alone, each with `why`, `hint` and `waits`; with an empty `why` those that
        have joined."""
        now = time.monotonic()
        ended = [_key(life) for life in lives if life.code == DONE]
        # Others may end because they miss ranks that have just ended: those have to say first how they trained.
        if self._separate or (now < self._next and (len(ended) < len(lives) or ended == self._ended)):
            return []
        self._next, self._ended = now + _EVERY_SECONDS, ended
        living = [life for life in lives if life.code is None]
        self._noted += _notes_in(self._journal)
        noted, at = _of_lives(self._noted, lives), time.time()
        news = list[tuple[int, dict[str, Any]]]()
        loners = {_key(life): of for life in living if (of := _alone(noted, life, lives, at, self._script))}
        self.final = next((of for of in loners.values() if of.in_vain), None)
        if len(ended) == len(lives) and _hosts(lives) > 1 and (why := _unjoined(noted, lives, _hosts(lives))):
            self.final = Alone(why + _whose(noted, self._script), _hint(noted, lives, self._script))
        for key, of in sorted(loners.items()):
            if self._reported.get(key) != of.waits:
                news.append((key[0], {"why": of.why, "hint": of.hint, "world": _world(lives), "waits": of.waits}))
        over = sorted(self._reported.keys() & {_key(life) for life in living} - loners.keys())
        self._reported = {key: of.waits for key, of in loners.items()}
        return [*news, *((rank, {"why": ""}) for rank, _ in over)]


def _alone(
    noted: Sequence[Mapping[str, Any]], life: Life, lives: Sequence[Life], now: float, script: Sequence[str]
) -> Alone | None:
    """How the rank of this life is alone by now; None while nothing shows that it is."""
    own = [note for note in noted if (note["rank"], note["attempt"]) == _key(life)]
    for note in reversed(own):
        own_place = note.get("taken", life.local_rank) == life.local_rank
        if not own_place or (_hosts(lives) == 1 and note.get("client") is not True):
            continue
        waited, in_vain = own_world.waits(note, own, now)
        if waited >= (_VAIN_SECONDS if in_vain else _WAIT_SECONDS):
            where, fix = own_world.blame(note, script)
            why = f"it meets at {note['meets']}, but the run's nodes meet at {note['given']}"
            if note.get("client") is True:
                why, fix = (
                    f"it sets {note['meets']} as the place where ranks meet, but no torchrun rank listens there",
                    _BY_HAND,
                )
            if "taken" in note:
                why = f"it joins as rank {note['taken']}, which is its LOCAL_RANK, and so does a rank of another node"
            if "launch" in note:
                fix += "; if each node should train alone: --nnodes=1 there, and --separate"
            fix = fix.removeprefix("; ") or _TORCH
            return Alone(f"{where}: {why}" if where else why, fix, True, in_vain and waited >= _HOPELESS_SECONDS)
    if not (why := _unjoined(noted, lives, _hosts(lives))):
        return None
    of_world = any("launch" in note or note.get("size", 0) > 1 for note in own)
    steps = [note.get("t", now) for note in own if of_world and note.get("stepped")]
    # One process without the run's variables may help for a while; a launcher, or several of them, do its work.
    unseen = [note for note in own if "unseen" in note]
    works = len(unseen) > 1 or any(map(own_world.is_launcher, unseen))
    begun = max((note.get("t", now) for note in unseen[:2]), default=now) if works else now
    lasts = now - min(steps, default=now) >= _GROUP_SECONDS or now - begun >= _WAIT_SECONDS
    if not lasts and not any(note.get("lasting") for note in own):
        return None
    return Alone(f"{why}{_whose(noted, script)}", _hint(noted, lives, script))


def trained_alone(outcome: Path, lives: Sequence[Life], nodes: int, script: Sequence[str] = ()) -> str:
    """Return why the ranks on this node did not train together; empty if they did, or if it is unknown."""
    noted = _notes_of(outcome, lives)
    if why := _unjoined(noted, lives, nodes):
        return why + _whose(noted, script)
    # Only the end shows this: ranks may work for long before they send each other anything.
    sizes = [note["size"] for note in noted if "size" in note]
    silent = any(note.get("stepped") for note in noted) and not any(note.get("sent") for note in noted)
    if silent and sizes and _world(lives) > 1 and not _otherwise(noted):
        return f"its {max(sizes)} ranks formed a process group, but sent nothing through it"
    return ""


def how_to_join(outcome: Path, lives: Sequence[Life], script: Sequence[str] = ()) -> str:
    """What a user may change so that the ranks of a script train together, in the words of its framework."""
    return _hint(_notes_of(outcome, lives), lives, script)


def _unjoined(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life], nodes: int) -> str:
    """Why the process groups that were formed do not join the ranks.

    Of several groups the largest counts. One whose ranks are all on this node is this node's alone. A group of one rank
    in which nobody stepped, and no launcher's, says nothing: a helper or an evaluation has such a group.
    """
    world, groups = _world(lives), dict[tuple[int, str], set[int]]()
    if world < 2 or not noted or _otherwise(noted):
        return ""
    for note in noted:
        if "size" in note:
            groups.setdefault((note["size"], note.get("store", "")), set()).add(note["member"])
    stepped = any(note.get("stepped") for note in noted)
    largest = max((size for size, _ in groups), default=0)
    if not groups and stepped:
        return f"its optimizer stepped, but the ranks formed no process group ({world} ranks should train together)"
    if not groups:
        unseen = [note for note in noted if "unseen" in note]
        of_node = all("own" in note for note in unseen)
        has = "is a world of this node alone" if of_node else "has none of the run's variables"
        joined = not unseen or any("joined" in note for note in noted)
        return "" if joined else f"the program that it started {has}, and joins no other node"
    if largest == 1 and not stepped and not any("launch" in note for note in noted):
        return ""
    own = [len(members) == size for (size, _), members in groups.items() if size == largest]
    if nodes > 1 and largest > 1 and all(own):
        return f"all {largest} ranks of its process group were on this host, but {nodes} hosts should train together"
    if largest < world:
        return f"its largest process group had {_count(largest)}, but {world} should train together"
    return ""


def _whose(noted: Sequence[Mapping[str, Any]], script: Sequence[str]) -> str:
    """Which line of a script brought the group that joins nobody, behind a colon."""
    where, _ = own_world.blame(_bringer(noted), script)
    return f": {where}" if where else ""


def _bringer(noted: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The note of whoever brought the largest group: a launcher, else the rank that formed it, or what is unseen."""
    of_launch = [note for note in noted if "launch" in note]
    groups = sorted((note for note in noted if "size" in note), key=lambda note: note["size"])
    unseen = [note for note in noted if "unseen" in note]
    return next(reversed([*unseen, *groups, *of_launch]), {})


def _hint(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life], script: Sequence[str]) -> str:
    loaded = {name for note in noted for name in note.get("loaded", ())}
    _, what = own_world.blame(_bringer(noted), script)
    if what:
        return f"{what}; if each node should train alone: --separate"
    if loaded & {"lightning", "pytorch_lightning", "lightning_fabric"}:
        how = f"num_nodes={_hosts(lives)}, devices={len(lives)}"
        what = f"Lightning joins the ranks with Trainer({how}, ...), or Fabric({how}, ...)"
    elif "accelerate" in loaded:
        what = (
            "join one process group, as torchrun's variables say (Accelerate does so on CPUs with "
            "ACCELERATE_USE_CPU=true)"
        )
    else:
        what = _TORCH
    return f"{what}; if each rank should train alone: --separate"


def _otherwise(noted: Sequence[Mapping[str, Any]]) -> bool:
    return any(note.get("otherwise") for note in noted)


def _world(lives: Sequence[Life]) -> int:
    return max((life.world for life in lives), default=1)


def _hosts(lives: Sequence[Life]) -> int:
    """How many nodes train, where each has as many ranks as this one. `--min-nodes` may have changed what was asked."""
    return max(1, _world(lives) // max(1, len(lives)))


def _count(ranks: int) -> str:
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def _key(life: Life) -> tuple[int, int]:
    return life.rank, life.attempt


def _notes_of(outcome: Path, lives: Sequence[Life]) -> list[dict[str, Any]]:
    """What the present lives have noted."""
    return _of_lives(notes(outcome), lives)


def _of_lives(noted: Iterable[dict[str, Any]], lives: Sequence[Life]) -> list[dict[str, Any]]:
    present = {_key(life) for life in lives}
    return [note for note in noted if (note.get("rank"), note.get("attempt")) in present]


def _are_words(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def processes(outcome: Path) -> list[int]:
    """The processes of this node that have trained, as far as that is seen."""
    named = [str(note.get("process", "")).partition("-")[0] for note in notes(outcome) if "script" in note]
    return sorted({int(pid) for pid in named if re.fullmatch(r"[1-9][0-9]{0,8}", pid)})


def error_of(outcome: Path, process: int) -> dict[str, Any]:
    """What a process has noted of the exception that ended it; nothing where it has not."""
    return next((note for note in notes(outcome) if note.get("pid") == process and "error" in note), {})


def notes(outcome: Path) -> list[dict[str, Any]]:
    """What the processes of this node have noted."""
    return _notes_in(Journal(outcome))


def _notes_in(journal: Journal) -> list[dict[str, Any]]:
    noted = []
    for note in journal.read():
        known = {name: kind for name, kind in _KINDS.items() if name in note}
        if all(isinstance(note[name], kind) for name, kind in known.items()) and _are_words(note.get("loaded", ())):
            noted.append(note)
    return noted
