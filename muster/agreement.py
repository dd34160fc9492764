"""The ranks agree on the step after which all of them stop, because a signal reaches each rank at a different time."""

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
    """A new group of all ranks that accepts CPU tensors; None if the default group accepts them or there is no group.

    All ranks call this at the same place.
    """
    if not (dist.is_available() and dist.is_initialized()) or dist.get_backend() == "gloo":
        return None
    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)
    return group


class Agreement:
    """Ask the ranks every few steps whether to stop; the message travels during the next step, so that no rank waits.

    When steps are short, a message in every step would cost noticeable time. So the ranks ask again after about
    `_SECONDS`, and after `_STEPS` steps at the latest, because a step may take longer than the steps before it.
    """

    def __init__(self, stop: Stop, group: dist.ProcessGroup | None) -> None:
        self._stop, self._group = stop, group
        self._alone = exchange.rank_and_world(group)[1] == 1
        self._work = None
        self._pause = self._steps = 0  # steps until the next message, and steps since the last one
        self._asked_at = time.monotonic()

    def all_stop(self) -> bool:
        """Whether some rank was asked to stop before a step that has ended; all ranks get the same answer."""
        if self._alone:
            return self._stop.asked
        self._steps += 1
        if self.settle():
            return True
        if self._pause:
            self._pause -= 1
            return False
        # MAX over the ranks: whether any rank was asked to stop, and (negated) the shortest pause, which all ranks then
        # keep.
        self._message = torch.tensor([float(self._stop.asked), -float(self._longest_pause())])
        self._work = dist.all_reduce(self._message, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return False

    def settle(self) -> bool:
        """Wait for the message that is on its way, and return whether to stop. A training calls this before it ends."""
        if self._work is None:
            return False
        self._work.wait()
        self._work = None
        stops, pause = self._message.tolist()
        self._pause = int(-pause)
        return bool(stops)

    def leave(self) -> NoReturn:
        """End the script when all ranks have reached this point: torchrun ends all ranks when the first one exits."""
        if not self._alone:
            dist.barrier(group=self._group)
        self._stop.leave()

    def _longest_pause(self) -> int:
        """The pause in steps, computed from the duration of the steps since the last message."""
        now = time.monotonic()
        step_seconds = (now - self._asked_at) / self._steps
        self._asked_at, self._steps = now, 0
        return min(_STEPS, int(_SECONDS / max(step_seconds, 1e-6)))
