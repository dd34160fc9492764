"""Whether the ranks of a script train together, by what torch noted in them (trainer/watch/together.py).

`Watch` tells it while they train, `trained_alone` at the end.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from muster.files import object_of

from . import torch_names
from .ends import Life

_NAME = "together.jsonl"
SITE = Path(__file__).parent / "site"
_EVERY_SECONDS = 2.0
# What a note may have: a script may write to the file as well.
_KINDS = {"rank": int, "attempt": int, "size": int, "member": int, "loaded": list}


def observed(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` so that every Python below notes what it forms. Last in line: a user's own goes before.

    A user who has switched that off gets the environment as it is.
    """
    if torch_names.plain(environment) or environment.get("MUSTER_OBSERVE") == "0":
        return dict(environment)
    return {**environment, "PYTHONPATH": ":".join(filter(None, (environment.get("PYTHONPATH"), str(SITE))))}


class Watch:
    """Looks every 2 s whether the ranks of a node train alone. `separate`: they may, and nothing is told.

    What counts is a rank whose optimizer still steps a while after its first step.
    """

    def __init__(self, outcome: Path, separate: bool = False) -> None:
        self._outcome, self._separate = outcome, separate
        self._next = 0.0
        self._reported: set[tuple[int, int]] = set()

    def look(self, lives: Sequence[Life]) -> list[tuple[int, dict[str, Any]]]:
        """Ranks that by now train alone, each with `why` and a `hint`; with an empty `why` those that have joined."""
        now = time.monotonic()
        if self._separate or now < self._next:
            return []
        self._next = now + _EVERY_SECONDS
        noted = _notes_of(self._outcome, lives)
        why, living = _unjoined(noted, lives, _hosts(lives)), {_key(life) for life in lives if life.code is None}
        alone = {(note["rank"], note["attempt"]) for note in noted if why and note.get("lasting")} & living
        begun, over = sorted(alone - self._reported), sorted(self._reported & living - alone)
        self._reported = alone
        hint = _hint(noted, lives) if begun else ""
        about = {"why": why, "hint": hint, "world": _world(lives)}
        return [*((rank, about) for rank, _ in begun), *((rank, {"why": ""}) for rank, _ in over)]


def trained_alone(outcome: Path, lives: Sequence[Life], nodes: int) -> str:
    """Return why the ranks on this node did not train together; empty if they did, or if it is unknown."""
    noted = _notes_of(outcome, lives)
    if why := _unjoined(noted, lives, nodes):
        return why
    # Only the end shows this: ranks may work for long before they send each other anything.
    sizes = [note["size"] for note in noted if "size" in note]
    silent = any(note.get("stepped") for note in noted) and not any(note.get("sent") for note in noted)
    if silent and sizes and _world(lives) > 1 and not _otherwise(noted):
        return f"its {max(sizes)} ranks formed a process group, and sent nothing through it"
    return ""


def how_to_join(outcome: Path, lives: Sequence[Life]) -> str:
    """What a user may change so that the ranks of a script train together, in the words of its framework."""
    return _hint(_notes_of(outcome, lives), lives)


def _unjoined(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life], nodes: int) -> str:
    """Why the process groups that were formed do not join the ranks.

    Of several groups the largest counts. One whose ranks are all on this node is this node's alone.
    """
    world = _world(lives)
    sizes = [note["size"] for note in noted if "size" in note]
    if world < 2 or not noted or _otherwise(noted):
        return ""
    if not sizes:
        return f"its optimizer stepped, but no process group was formed ({world} ranks were to train together)"
    members = {note["member"] for note in noted if note.get("size") == max(sizes)}
    if max(sizes) < world:
        return f"its largest process group was of {_count(max(sizes))}, and {world} were to train together"
    if nodes > 1 and len(members) == max(sizes):
        return (
            f"all {max(sizes)} ranks of its process group were on this host, and {nodes} hosts were to train together"
        )
    return ""


def _hint(noted: Sequence[Mapping[str, Any]], lives: Sequence[Life]) -> str:
    loaded = {name for note in noted for name in note.get("loaded", ())}
    if loaded & {"lightning", "pytorch_lightning", "lightning_fabric"}:
        how = f"num_nodes={_hosts(lives)}, devices={len(lives)}"
        what = f"Lightning joins the ranks with Trainer({how}, ...), or Fabric({how}, ...)"
    elif "accelerate" in loaded:
        what = (
            "join one process group, as torchrun's variables say (Accelerate does so on CPUs with "
            "ACCELERATE_USE_CPU=true)"
        )
    else:
        what = (
            "the script must call torch.distributed.init_process_group(), without an address, a rank or a world size "
            "of its own: torchrun's variables say them"
        )
    return f"{what}; where each rank shall train alone: --separate"


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
    present = {_key(life) for life in lives}
    return [note for note in notes(outcome) if (note.get("rank"), note.get("attempt")) in present]


def _are_words(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def notes(outcome: Path) -> list[dict[str, Any]]:
    """What the processes of this node have noted."""
    noted = []
    with suppress(OSError):
        for line in (outcome / _NAME).read_text().splitlines():
            note = object_of(line)
            known = {name: kind for name, kind in _KINDS.items() if name in note}
            names = note.get("loaded", ())
            if all(isinstance(note[name], kind) for name, kind in known.items()) and _are_words(names):
                noted.append(note)
    return noted
