"""The verdict: how a run ended, and whether a fault means failed or refused. The first rank that knows publishes it.

A verdict is final. If a rank dies without a verdict (SIGKILL, a lost node), torchrun or the backend starts it again.
"""

from __future__ import annotations

import json
import os
import socket
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from muster.errors import DONE, REFUSED, STOPPED, TrainError
from muster.files import replace
from muster.reserve import note, write_surely

from .node.rank.failure import masked
from .node.rank.place import in_run
from .run_dir import RankFolder

if TYPE_CHECKING:
    from torch.distributed import Store  # type: ignore[attr-defined]

# The command that continues a run, if a control side started the run; the control side then also reports how it ended.
RESUME = "MUSTER_RESUME_COMMAND"
_KEY = "muster/verdict"
_SEEN = "muster/verdict-seen"


@dataclass(frozen=True)
class Verdict:
    """The end of a run; `rank` and `node` are the culprit's, not the reporter's.

    `since` is when the node's first rank died, in unix seconds of the node's clock; 0 if a rank gave the reason for its
    end. `cause` is a cause from contract.md, if the message is not the text of an exception.
    """

    verdict: str
    code: int
    rank: int
    node: str
    step: int
    message: str = ""
    hint: str = ""
    since: float = 0.0
    cause: str = ""

    def row(self) -> dict[str, Any]:
        """Its fields, as they are written; the cause only if there is one."""
        return {name: value for name, value in asdict(self).items() if name != "cause" or value}


def done(rank: int, node: str, step: int) -> Verdict:
    """The verdict of a run that did all its steps."""
    return Verdict("done", DONE, rank, node, step)


def stopped(rank: int, node: str, step: int, message: str, folder: Path) -> Verdict:
    """The verdict of a run that was asked to stop, and that wrote a checkpoint into its `folder`."""
    # Of the launchers that set the run folder, only docker-compose.yml sets no command; it sets MUSTER_WORKER.
    plain = f"--resume {folder}"
    if os.environ.get("MUSTER_RUN_DIR") and os.environ.get("MUSTER_WORKER"):
        plain = "make up RESUME=latest"
    command = os.environ.get(RESUME, plain)
    return Verdict(
        "stopped", STOPPED, rank, node, step, message, f"`{command}` continues from here", cause="ended-from-outside"
    )


def verdict_of(value: object) -> Verdict | None:
    """The verdict that `row` wrote; None for any other value, because a script may write this file."""
    if not isinstance(value, dict):
        return None
    kinds: dict[str, type | tuple[type, ...]] = {"int": int, "str": str, "float": (int, float)}
    known = {field.name: kinds[str(field.type)] for field in fields(Verdict)}
    if not value.keys() <= known.keys() or not all(isinstance(each, known[name]) for name, each in value.items()):
        return None
    with suppress(TypeError):  # a field is missing
        return Verdict(**value)
    return None


def failed(rank: int, node: str, step: int, fault: TrainError, cause: str = "") -> Verdict:
    """The verdict of a run that a fault ended; `refused` if the fault is in the user's input."""
    kind = "refused" if fault.code == REFUSED else "failed"
    return Verdict(
        kind, fault.code, *(fault.culprit or (rank, node)), step, masked(fault.message), fault.hint, cause=cause
    )


class VerdictStore:
    """Shares the verdict among the ranks through torchrun's store."""

    def __init__(self, store: Store, rank: int, world: int) -> None:
        self._store, self._rank, self._world = store, rank, world

    def publish(self, verdict: Verdict) -> Verdict:
        """Publish `verdict` unless another rank has already published one. Returns the verdict in the store."""
        text = json.dumps(verdict.row())
        with suppress(Exception):  # the store ended with rank 0: then each rank records its own verdict
            return Verdict(**json.loads(self._store.compare_set(_KEY, "", text)))
        return verdict

    def poll(self, timeout_seconds: float = 0.3) -> Verdict | None:
        """The verdict that another rank published; None if there is none in time or the store is gone.

        A rank publishes its verdict before it leaves, so a rank that lost this peer finds the verdict immediately or
        never. This polls, because `store.wait()` needs a full second to time out.
        """
        end = time.monotonic() + timeout_seconds
        with suppress(Exception):
            while not self._store.check([_KEY]):
                if time.monotonic() > end:
                    return None
                time.sleep(0.02)
            return Verdict(**json.loads(self._store.get(_KEY)))
        return None

    def linger(self, timeout_seconds: float = 5.0) -> None:
        """Record that this rank has the verdict. Rank 0, which hosts the store, waits until all ranks have it."""
        with suppress(Exception):
            seen = self._store.add(_SEEN, 1)
            end = time.monotonic() + timeout_seconds
            while self._rank == 0 and seen < self._world and time.monotonic() < end:
                time.sleep(0.02)
                seen = self._store.add(_SEEN, 0)


def record(verdict: Verdict, folder: RankFolder, local_rank: int) -> None:
    """Write the verdict to the rank's events and to the files that the agent and the control side read."""
    folder.event("outcome", **verdict.row(), culprit=verdict.rank, culprit_node=verdict.node)
    publish(verdict, folder.path, f"{folder.node}-{local_rank}")


def publish(verdict: Verdict, run_folder: Path | None, name: str, private: Path | None = None) -> bool:
    """Write the verdict as `outcome/<name>.json` in the run folder, and into the journal of this node.

    The journal is in `private`, by default the rank's MUSTER_OUTCOME_DIR. Returns False if the disk rejects one of the
    two.
    """
    row = {**verdict.row(), "rank": in_run(verdict.rank)}
    if private is None and (agent := os.environ.get("MUSTER_OUTCOME_DIR")):
        private = Path(agent)
    is_told = not private or note(private, verdict=row, by=name)
    path = run_folder / "outcome" / f"{name}.json" if run_folder else None
    return (not path or write_surely(partial(replace, path, json.dumps(row)), private)) and is_told


def publish_before_training(fault: TrainError, rank: int, who: str) -> Verdict:
    """Publish that a fault has ended the run; `who` is a local rank of this node or its agent.

    The node and the run folder come from the environment.
    """
    node, folder = os.environ.get("MUSTER_NODE") or socket.gethostname(), os.environ.get("MUSTER_RUN_DIR")
    verdict = failed(rank, node, 0, fault)
    publish(verdict, Path(folder) if folder else None, f"{node}-{who}")
    return verdict
