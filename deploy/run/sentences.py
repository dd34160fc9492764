"""Events that a run's story tells in one sentence, and that change nothing else of its state. Pure."""

from __future__ import annotations

import shlex

from ..core.text import amount, several
from .environment import CACHE, RUNS_IN_CONTAINER
from .events import Event


def of(event: Event) -> tuple[str, bool] | None:
    """The sentence, and whether it is grave; None for an event of another kind."""
    telling = _KINDS.get(event.get("kind", ""))
    return telling(event) if telling else None


def _checkpoint_failed(event: Event) -> tuple[str, bool]:
    return f"checkpoint at step {event.get('step')} failed: {event.get('message', '')}", True


def _checkpoint_damaged(event: Event) -> tuple[str, bool]:
    return f"skipped a damaged checkpoint: {event.get('message', '')}", True


def _shared(event: Event) -> tuple[str, bool]:
    what = f"{several(event['files'], 'file')}, {amount(event['bytes'])}"
    return f"{event['node']} gets {what}, that it lacks or has an old copy of, from {event['source']}", False


def _own_library(event: Event) -> tuple[str, bool]:
    return f"`import muster` gives the script its own {event['path']}, not Muster's library", False


def _outside(event: Event) -> tuple[str, bool]:
    """Files that lie where a run keeps none, or shares none."""
    first = next(iter(event["paths"]), "")
    more = f" and {several(event['files'] - 1, 'other file')}" if event["files"] > 1 else ""
    wrote = f"{event['node']}: the script wrote {first}{more} ({amount(event['bytes'])})"
    if first.startswith(f"{CACHE}/"):
        return f"{wrote} among the downloads of all runs: a fetch leaves it there (docs/caches.md says where)", True
    if first.startswith(RUNS_IN_CONTAINER.removesuffix("s")):
        return f"{wrote} beside its folder: at a restart no other host gets it", False
    keep = shlex.quote(first.rpartition("/")[0] or "/")
    return f"{wrote} where nothing is kept: it goes with the container; `--keep {keep}` keeps it", True


_KINDS = {
    "outside": _outside,
    "checkpoint_failed": _checkpoint_failed,
    "checkpoint_damaged": _checkpoint_damaged,
    "shared": _shared,
    "own_library": _own_library,
}
