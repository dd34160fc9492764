"""Whether the ranks of a script trained together, by what torch noted in them (site/sitecustomize.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from . import torch_names
from .ends import Life

_NAME = "together.jsonl"
SITE = Path(__file__).parent / "site"


def observed(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment` so that every Python below notes what it forms. Last in line: a user's own goes before."""
    if torch_names.plain(environment):
        return dict(environment)
    return {**environment, "PYTHONPATH": ":".join(filter(None, (environment.get("PYTHONPATH"), str(SITE))))}


def trained_alone(outcome: Path, lives: Sequence[Life], nodes: int) -> str:
    """Why a run of more ranks than one did not train together on this node; empty where it did, or nobody can tell.

    Of several groups the largest counts. One whose ranks are all on this node is this node's alone.
    """
    present = {(life.rank, life.attempt) for life in lives}
    world = max((life.world for life in lives), default=1)
    noted = [note for note in _notes(outcome) if (note["rank"], note["attempt"]) in present]
    sizes = [note["size"] for note in noted if "size" in note]
    if world < 2 or not noted or any(note.get("otherwise") for note in noted):
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
    if any(note.get("stepped") for note in noted) and not any(note.get("sent") for note in noted):
        return f"its {max(sizes)} ranks formed a process group, and sent nothing through it"
    return ""


def _count(ranks: int) -> str:
    return f"{ranks} rank{'' if ranks == 1 else 's'}"


def _notes(outcome: Path) -> list[dict[str, Any]]:
    notes = []
    with suppress(OSError):
        for line in (outcome / _NAME).read_text().splitlines():
            with suppress(ValueError):
                notes.append(json.loads(line))
    return notes
