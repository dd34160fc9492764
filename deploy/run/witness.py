"""What the witness of a run's end has to know, for --on-end (docs/contract.md: MUSTER_ON_END). Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def plan_of(
    command: str, run: str, folder: str, nodes: Sequence[str], start: str, restarts: bool, rank: int = 0
) -> dict[str, Any]:
    """What a witness has to know of the nodes whose run folder it sees; docs/contract.md lists it."""
    return {
        "command": command,
        "run": run,
        "folder": folder,
        "nodes": list(nodes),
        "start": start,
        "restarts": restarts,
        "rank": rank,
        **{"hosts": [""], "names": list(nodes), "place": 0, "port": 0, "token": ""},
    }
