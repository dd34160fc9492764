"""A run's checkpoints on one rank: which ranks write them, when, and what is recorded and printed about them."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path
from typing import NamedTuple

from muster import exchange
from muster.checkpoint import WriteResult, open_writer
from muster.checkpoint.disks import lowest_on_each, savers
from muster.checkpoint.manifest import MANIFEST
from muster.checkpoint.store import listed
from muster.errors import TrainError

from ..config import Config
from ..run_dir import RankFolder
from .ending.rescue import Mark, Rescue, Take
from .environment import Ranks
from .process_group import Group
from .saving_lock import locked
from .step import Stepper


class LastWrite(NamedTuple):
    """On rank 0: the newest good checkpoint, why the last write failed (empty: it did not), and rank 0's node."""

    good: str
    fault: str
    node: str


class Checkpoints:
    """The checkpoints on this rank. All ranks build this at the same place.

    `say` prints on rank 0's console, `say_on_any_rank` on this rank's console.
    """

    def __init__(
        self,
        config: Config,
        stepper: Stepper,
        group: Group,
        ranks: Ranks,
        folder: RankFolder,
        say: Callable[[str], None],
        say_on_any_rank: Callable[[str], None],
    ) -> None:
        self._group, self._ranks, self._folder, self._config = group, ranks, folder, config
        self._say, self._say_on_any_rank = say, say_on_any_rank
        self._copies = stepper.mesh.copies
        # If ranks hold the same state on several disks, more than one of them writes it: the first host may be lost.
        several = self._copies and ranks.world > 1
        lowest = lowest_on_each(folder.checkpoints) if several else [0] * ranks.world
        self._savers = savers(lowest, ranks.disks) if several else [0]
        lock = partial(locked, folder.path) if several else nullcontext
        writes, keep = ranks.rank in self._savers, config.keep
        self._writer = open_writer(folder.checkpoints, keep, True, self._written, stepper.parts(), writes, lock)
        # A GPU may be waiting for the lost rank, and a copy of the weights would queue behind that. Not yet tried on a
        # GPU.
        rescues = several and lowest[ranks.rank] in self._savers and group.device.type != "cuda"
        self._rescue: Rescue | None = None
        if rescues:
            self._rescue = Rescue(folder.path, folder.checkpoints, keep, self._writer, self._rescued)
        self._mark, self._start = Mark(), 0
        self._last_good = "none yet"

    def continue_after(self, step: int, created: float) -> None:
        """Continue from the checkpoint of `step`, written at `created`; step 0 if there is no checkpoint."""
        self._start, self._mark = step, Mark(step, created)
        self._agree_on_time(step)

    def save(self, step: int, metric: float | None, take: Take) -> None:
        """Start to write the checkpoint of `step`. On ranks that write, `take` returns the state and the summary."""
        created = self._agree_on_time(step)
        if self._writer:
            state, summary = take()
            self._writer.submit(step, state, metric, summary, created)

    def rescue(self, step: int, take: Take) -> None:
        """Save the last finished `step` of a run that breaks off, if this rank may. The rank ends after this."""
        if self._rescue and step > self._start:
            self._rescue.save(step, self._mark.at(step), take)

    def wait(self) -> None:
        """Return when all ranks have written their checkpoints: no rank may look for checkpoints before."""
        self._allow_for_writing()
        with suppress(TrainError):  # `_written` has reported it
            if self._writer:
                self._writer.wait()
        exchange.all_of(None)

    def settle(self) -> LastWrite:
        """Wait for the last checkpoint. Every rank gets rank 0's result."""
        self._allow_for_writing()
        fault = ""
        try:
            if self._writer:
                self._writer.finish()
        except TrainError as error:
            fault = error.message
        return LastWrite(*exchange.broadcast((self._last_good, fault, self._ranks.node)))

    def close(self) -> None:
        """Finish all writes, however the run ended."""
        with suppress(TrainError):  # `_written` has reported it
            if self._writer:
                self._writer.finish()

    def _allow_for_writing(self) -> None:
        self._group.set_timeout(self._config.join_timeout)  # a big state takes longer to write and read than a step

    def _agree_on_time(self, step: int) -> float | None:
        """Make all ranks agree on a time for this step's checkpoint; None if the writing ranks agree on it later."""
        if self._writer:
            self._writer.continue_after(self._mark.at(step))
        if not self._copies:
            return None
        self._mark = Mark(step, exchange.broadcast(self._writer.now() if self._writer else 0.0))
        return self._mark.time

    def _written(self, written: WriteResult) -> None:
        """The writer thread calls this when a checkpoint is on the disk, or when its write failed."""
        if self._ranks.rank not in self._savers:
            return
        if written.error:
            why = self._failed(written)
            earlier = describe_earlier(self._folder.checkpoints)
            self._say(f"checkpoint at step {written.step} failed on {self._ranks.node}, {earlier}: {why}")
            return
        self._last_good = str(written.path)
        if self._ranks.first:
            self._on_disk(written)
        else:
            write_ms = round(written.write_ms, 2)
            self._folder.event("copied", step=written.step, write_ms=write_ms, bytes=written.bytes)

    def _rescued(self, written: WriteResult) -> None:
        """Report what the rescue has saved. The thread of the rescue calls this."""
        own = f"rank {self._ranks.rank} ({self._ranks.node})"
        if written.error:
            how = f"could not save: {self._failed(written)}"
        else:
            self._on_disk(written)
            how = "has saved"
        self._say_on_any_rank(f"training ended after step {written.step}, which {own} {how}")

    def _failed(self, written: WriteResult) -> str:
        why = written.error.message if written.error else ""
        self._folder.event("checkpoint_failed", step=written.step, message=f"{self._ranks.node}: {why}")
        return why

    def _on_disk(self, written: WriteResult) -> None:
        self._folder.event(
            "checkpoint",
            step=written.step,
            path=str(written.path),
            pause_ms=round(written.pause_ms, 2),
            write_ms=round(written.write_ms, 2),
            bytes=written.bytes,
        )


def describe_earlier(folder: Path) -> str:
    """Describe the newest earlier checkpoint in a folder, read from the disk: somebody may have emptied the folder."""
    with suppress(OSError):
        for _, path in listed(folder):
            if (path / MANIFEST).is_file():
                return f"{path.name} exists"
    return "and there is no earlier one"
