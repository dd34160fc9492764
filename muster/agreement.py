"""The ranks agree on the step after which all of them stop. A signal reaches each of them at a different time."""

from __future__ import annotations

import time
from typing import NoReturn

import torch
import torch.distributed as dist

from . import exchange
from .stop import Stop

_SECONDS = 0.25
_STEPS = 16


def cpu_group() -> dist.ProcessGroup | None:
    """A group of all ranks that takes CPU tensors; None: the default group does, or there is none.

    All ranks call this at the same place.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "gloo":
        return None
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group


class Agreement:
    """Asks the ranks every few steps. Their message travels while they compute the next step, so no rank waits for it.

    Where steps are short a message of every step would cost some of them: the ranks ask again after about
    `_SECONDS`, and after `_STEPS` steps at most, since a step may become longer than the ones before it.
    """

    def __init__(self, stop: Stop, group: dist.ProcessGroup | None) -> None:
        self._stop, self._group = stop, group
        self._alone = exchange.rank_and_world(group)[1] == 1
        self._work = None
        self._pause = self._steps = 0  # steps until the next message, steps since the last
        self._asked_at = time.monotonic()

    def all_stop(self) -> bool:
        """Whether a rank was asked to stop before a step that has ended; the same answer on all ranks."""
        if self._alone:
            return self._stop.asked
        self._steps += 1
        if self.settle():
            return True
        if self._pause:
            self._pause -= 1
            return False
        # The largest of each: a rank's wish to stop, and the shortest of the pauses, which all ranks then keep.
        self._message = torch.tensor([float(self._stop.asked), -float(self._longest_pause())])
        self._work = dist.all_reduce(self._message, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return False

    def settle(self) -> bool:
        """Wait for the message that is under way, and return what it says. A training that ends does so first."""
        if self._work is None:
            return False
        self._work.wait()
        self._work = None
        stops, pause = self._message.tolist()
        self._pause = int(-pause)
        return bool(stops)

    def leave(self) -> NoReturn:
        """End this rank's script once every rank has come so far: torchrun ends the others when the first one goes."""
        if not self._alone:
            dist.barrier(group=self._group)
        self._stop.leave()

    def _longest_pause(self) -> int:
        """In steps, by the time that the steps since the last message took."""
        now = time.monotonic()
        step_seconds = (now - self._asked_at) / self._steps
        self._asked_at, self._steps = now, 0
        return min(_STEPS, int(_SECONDS / max(step_seconds, 1e-6)))
