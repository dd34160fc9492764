"""How a run ended, agreed by all ranks: the first to know tells the others through the store, and each records it.

A verdict is final. A rank that dies without one (SIGKILL, a lost node) is brought back by torchrun or the backend.
"""

from __future__ import annotations

import json
import os
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from muster.errors import DONE, REFUSED, STOPPED, TrainError
from muster.files import replace, surely

from .run_dir import RankFolder

if TYPE_CHECKING:
    from torch._C._distributed_c10d import Store

_KEY = "muster/verdict"
_SEEN = "muster/verdict-seen"


@dataclass(frozen=True)
class Verdict:
    """The end of a run; `rank` and `node` name the culprit, not the reporter.

    `since`: when its first rank died, in unix seconds by the node's clock; 0 where a rank could say why it ended.
    """

    verdict: str
    code: int
    rank: int
    node: str
    step: int
    message: str = ""
    hint: str = ""
    since: float = 0.0


def done(rank: int, node: str, step: int) -> Verdict:
    """All steps are done."""
    return Verdict("done", DONE, rank, node, step)


def stopped(rank: int, node: str, step: int, message: str) -> Verdict:
    """Somebody asked for the end; a checkpoint was written."""
    command = os.environ.get("MUSTER_RESUME_COMMAND", "make up RESUME=latest")
    return Verdict("stopped", STOPPED, rank, node, step, message, f"`{command}` goes on from here")


def failed(rank: int, node: str, step: int, fault: TrainError) -> Verdict:
    """An expected fault ended the run (`refused` when it is the user's input)."""
    kind = "refused" if fault.code == REFUSED else "failed"
    return Verdict(kind, fault.code, *(fault.culprit or (rank, node)), step, fault.message, fault.hint)


class Court:
    """Passes the verdict among ranks over torchrun's store."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self._store, self._rank, self._world = store, rank, world

    def post(self, verdict: Verdict) -> Verdict:
        """Make `verdict` known; returns the one that stands (an earlier one wins)."""
        text = json.dumps(asdict(verdict))
        with suppress(Exception):  # the store is gone with rank 0: then every rank speaks for itself
            return Verdict(**json.loads(self._store.compare_set(_KEY, "", text)))
        return verdict

    def heard(self, patience_seconds: float = 0.3) -> Verdict | None:
        """The verdict another rank posted; None when there is none within the patience or the store is gone.

        A rank posts its verdict before it leaves, so whoever misses it finds the verdict there or not at all. Asked
        for, not waited for: the store's own waiting takes a second to say that it was in vain.
        """
        end = time.monotonic() + patience_seconds
        with suppress(Exception):
            while not self._store.check([_KEY]):
                if time.monotonic() > end:
                    return None
                time.sleep(0.02)
            return Verdict(**json.loads(self._store.get(_KEY)))
        return None

    def leave(self, patience_seconds: float = 5.0) -> None:
        """Say that this rank knows. Rank 0 hosts the store, so it stays until all know or patience ends."""
        with suppress(Exception):
            seen = self._store.add(_SEEN, 1)
            end = time.monotonic() + patience_seconds
            while self._rank == 0 and seen < self._world and time.monotonic() < end:
                time.sleep(0.02)
                seen = self._store.add(_SEEN, 0)


def record(verdict: Verdict, folder: RankFolder, local_rank: int) -> None:
    """Write the verdict into the rank's events and where others look for it."""
    folder.event("outcome", **asdict(verdict), culprit=verdict.rank, culprit_node=verdict.node)
    publish(verdict, folder.path, f"{folder.node}-{local_rank}")


def publish(verdict: Verdict, run_folder: Path | None, name: str, private: Path | None = None) -> bool:
    """Leave the verdict as `outcome/<name>.json` in the run folder, and in `private`, where this node's agent looks.

    A rank's `private` is MUSTER_OUTCOME_DIR. Returns whether all of it was written: a disk may take no more.
    """
    text = json.dumps(asdict(verdict))
    if private is None and (named := os.environ.get("MUSTER_OUTCOME_DIR")):
        private = Path(named)
    places = [place for place in (private, run_folder / "outcome" if run_folder else None) if place]
    written = [surely(partial(replace, place / f"{name}.json", text), private) for place in places]
    return all(written)
