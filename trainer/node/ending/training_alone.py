"""Whether the ranks of a script train together, and advice if they do not, for Lightning, Accelerate and torch.

This is decided from the notes that the ranks leave (trainer/node/rank/world_notes.py). `AloneWatch` reports it while
they train, and `why_trained_alone` at the end.
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
# After how many seconds it is reported: a group that joins no other node; a wait in vain; any other wait. After
# _HOPELESS_SECONDS, ranks that wait in vain are ended.
_GROUP_SECONDS, _VAIN_SECONDS, _WAIT_SECONDS, _HOPELESS_SECONDS = 3.0, 6.0, 10.0, 45.0
# The types of a note's fields, which are checked because a script may write to the file as well.
_KINDS: Mapping[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("rank", "attempt", "size", "member", "pid", "taken", "kills", "group"), int),
    **dict.fromkeys(("store", "meets", "given", "at"), str),
    **dict.fromkeys(("loaded", "launch", "command", "shell"), list),
    "t": (int, float),
}

_ADDRESS_HINT = (
    "leave that out; if the script starts its own ranks, put `python` before its name, or use --each on several "
    "hosts, which fills in {master} and {port}"
)
_TORCH_HINT = (
    "the script must call torch.distributed.init_process_group() without an address, a rank or a world size, "
    "because torchrun's variables have them; `muster docs several-gpus` shows the lines"
)


def with_watcher(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` with the watcher on PYTHONPATH, so that every Python below notes the groups that it forms.

    The watcher's folder comes last, after the user's own. If the user has switched watching off, nothing is changed.
    """
    if not variables.is_observed(environment):
        return dict(environment)
    return {**environment, "PYTHONPATH": ":".join(filter(None, (environment.get("PYTHONPATH"), str(SITE))))}


@dataclass(frozen=True)
class AloneReason:
    """Why a rank is alone, and what to change.

    `waits`: it does not train, but waits. `in_vain`: it has long waited where no other node can come.
    """

    why: str
    hint: str
    waits: bool = False
    in_vain: bool = False


class AloneWatch:
    """Checks every second whether the ranks of a node train alone, or wait where no other node comes.

    `separate`: they are allowed to train alone, and nothing is reported. `script`: the words of the run's command. A
    rank counts as training alone if its optimizer still steps a while after its first step, or if it stepped in a group
    that joins no other node. `final`: set once the node's ranks have ended well in a world of their own, or wait in
    vain; then the run cannot become what was asked for.
    """

    def __init__(self, outcome: Path, separate: bool = False, script: Sequence[str] = ()) -> None:
        self._journal, self._separate, self._script = Journal(outcome), separate, script
        self._noted: list[dict[str, Any]] = []
        self._next = 0.0
        self._reported: dict[tuple[int, int], bool] = {}
        self._ended: list[tuple[int, int]] = []
        self.final: AloneReason | None = None

    def look(self, lives: Sequence[Life]) -> list[tuple[int, dict[str, Any]]]:
        """Ranks that have begun to train or wait alone, each with `why`, `hint` and `waits`.

        For ranks that have joined the others since, `why` is empty.
        """
        now = time.monotonic()
        ended = [_key(life) for life in lives if life.code == DONE]
        # Once all ranks have ended, look immediately: ranks of other nodes may fail because these are gone, and this
        # node has to report first how its ranks trained.
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
            self.final = AloneReason(why + _whose(noted, self._script), _hint(noted, lives, self._script))
        for key, of in sorted(loners.items()):
            if self._reported.get(key) != of.waits:
                news.append((key[0], {"why": of.why, "hint": of.hint, "world": _world(lives), "waits": of.waits}))
        over = sorted(self._reported.keys() & {_key(life) for life in living} - loners.keys())
        self._reported = {key: of.waits for key, of in loners.items()}
        return [*news, *((rank, {"why": ""}) for rank, _ in over)]


def _alone(
    noted: Sequence[Mapping[str, Any]], life: Life, lives: Sequence[Life], now: float, script: Sequence[str]
) -> AloneReason | None:
    """Why the rank of this life is alone; None as long as nothing shows that it is."""
    own = [note for note in noted if (note["rank"], note["attempt"]) == _key(life)]
    for note in reversed(own):
        own_place = note.get("taken", life.local_rank) == life.local_rank
        if not own_place or (_hosts(lives) == 1 and note.get("client") is not True):
            continue
        waited, in_vain = own_world.waited_s(note, own, now)
        if waited >= (_VAIN_SECONDS if in_vain else _WAIT_SECONDS):
            where, fix = own_world.culprit_line(note, script)
            why = f"it meets at {note['meets']}, but the run's nodes meet at {note['given']}"
            if note.get("client") is True:
                why, fix = (
                    f"it sets {note['meets']} as the place where ranks meet, but no torchrun rank listens there",
                    _ADDRESS_HINT,
                )
            if "taken" in note:
                why = f"it joins as rank {note['taken']}, which is its LOCAL_RANK, and so does a rank of another node"
            if "launch" in note:
                fix += "; if each node should train alone: --nnodes=1 there, and --separate"
            fix = fix.removeprefix("; ") or _TORCH_HINT
            return AloneReason(f"{where}: {why}" if where else why, fix, True, in_vain and waited >= _HOPELESS_SECONDS)
    if not (why := _unjoined(noted, lives, _hosts(lives))):
        return None
    of_world = any("launch" in note or note.get("size", 0) > 1 for note in own)
    steps = [note.get("t", now) for note in own if of_world and note.get("stepped")]
    # One process without the run's variables may be a helper for a while. A launcher, or several such processes, train.
    unseen = [note for note in own if "unseen" in note]
    works = len(unseen) > 1 or any(map(own_world.is_launcher, unseen))
    begun = max((note.get("t", now) for note in unseen[:2]), default=now) if works else now
    lasts = now - min(steps, default=now) >= _GROUP_SECONDS or now - begun >= _WAIT_SECONDS
    if not lasts and not any(note.get("lasting") for note in own):
        return None
    return AloneReason(f"{why}{_whose(noted, script)}", _hint(noted, lives, script))


def why_trained_alone(outcome: Path, lives: Sequence[Life], nodes: int, script: Sequence[str] = ()) -> str:
    """Return why the ranks on this node did not train together; empty if they did, or if that is unknown."""
    noted = _notes_of(outcome, lives)
    if why := _unjoined(noted, lives, nodes):
        return why + _whose(noted, script)
    # Only the end shows this, since ranks may train for a long time before they send each other anything.
    sizes = [note["size"] for note in noted if "size" in note]
    silent = any(note.get("stepped") for note in noted) and not any(note.get("sent") for note in noted)
    if silent and sizes and _world(lives) > 1 and not _otherwise(noted):
        return f"its {max(sizes)} ranks formed a process group, but sent nothing through it"
    return ""


def join_hint(outcome: Path, lives: Sequence[Life], script: Sequence[str] = ()) -> str:
    """What a user may change so that the ranks of a script train together, in terms of the script's framework."""
    return _hint(_notes_of(outcome, lives), lives, script)


def _unjoined(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life], nodes: int) -> str:
    """Why the process groups that were formed do not join the ranks; empty if they do, or if nothing is known.

    The largest group counts. If all its ranks are on this node, it does not include other nodes. A group of one rank in
    which no optimizer stepped, and which no launcher formed, shows nothing: a helper or an evaluation may form one.
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
    """After a colon, the line of the script that set up the group that joins no other node; empty if it is unknown."""
    where, _ = own_world.culprit_line(_bringer(noted), script)
    return f": {where}" if where else ""


def _bringer(noted: Sequence[Mapping[str, Any]]) -> Mapping[str, Any]:
    """The note of the process that set up the largest group: a launcher, else a rank, else an unwatched process."""
    of_launch = [note for note in noted if "launch" in note]
    groups = sorted((note for note in noted if "size" in note), key=lambda note: note["size"])
    unseen = [note for note in noted if "unseen" in note]
    return next(reversed([*unseen, *groups, *of_launch]), {})


def _hint(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life], script: Sequence[str]) -> str:
    loaded = {name for note in noted for name in note.get("loaded", ())}
    _, what = own_world.culprit_line(_bringer(noted), script)
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
        what = _TORCH_HINT
    return f"{what}; if each rank should train alone: --separate"


def _otherwise(noted: Sequence[Mapping[str, Any]]) -> bool:
    return any(note.get("otherwise") for note in noted)


def _world(lives: Sequence[Life]) -> int:
    return max((life.world for life in lives), default=1)


def _hosts(lives: Sequence[Life]) -> int:
    """How many nodes train, if each has as many ranks as this one; `--min-nodes` may have changed that number."""
    return max(1, _world(lives) // max(1, len(lives)))


def _count(ranks: int) -> str:
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def _key(life: Life) -> tuple[int, int]:
    return life.rank, life.attempt


def _notes_of(outcome: Path, lives: Sequence[Life]) -> list[dict[str, Any]]:
    """The notes of the current lives."""
    return _of_lives(notes(outcome), lives)


def _of_lives(noted: Iterable[dict[str, Any]], lives: Sequence[Life]) -> list[dict[str, Any]]:
    present = {_key(life) for life in lives}
    return [note for note in noted if (note.get("rank"), note.get("attempt")) in present]


def _are_words(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def trained_processes(outcome: Path) -> list[int]:
    """The processes of this node that are known to have trained."""
    named = [str(note.get("process", "")).partition("-")[0] for note in notes(outcome) if "script" in note]
    return sorted({int(pid) for pid in named if re.fullmatch(r"[1-9][0-9]{0,8}", pid)})


def error_of(outcome: Path, process: int) -> dict[str, Any]:
    """The note of a process about the exception that ended it; empty if there is none."""
    return next((note for note in notes(outcome) if note.get("pid") == process and "error" in note), {})


def notes(outcome: Path) -> list[dict[str, Any]]:
    """All valid notes of this node's processes."""
    return _notes_in(Journal(outcome))


def _notes_in(journal: Journal) -> list[dict[str, Any]]:
    noted = []
    for note in journal.read():
        known = {name: kind for name, kind in _KINDS.items() if name in note}
        if all(isinstance(note[name], kind) for name, kind in known.items()) and _are_words(note.get("loaded", ())):
            noted.append(note)
    return noted
