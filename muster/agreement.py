"""The ranks agree on the step after which all of them stop. A signal reaches each of them at a different time."""

from __future__ import annotations

import torch
import torch.distributed as dist

from . import exchange
from .stop import Stop


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
    """Asks the ranks once a step. Their message travels while they compute the next step, so nobody waits for it."""

    def __init__(self, stop: Stop, group: dist.ProcessGroup | None) -> None:
        self._stop, self._group = stop, group
        self._alone = exchange.rank_and_world(group)[1] == 1
        self._flag, self._work = torch.zeros(1), None

    def all_stop(self) -> bool:
        """Whether a rank was asked to stop before the step that has just ended; the same answer on all ranks."""
        if self._alone:
            return self._stop.asked
        if self.settle():
            return True
        self._flag = torch.tensor([float(self._stop.asked)])
        self._work = dist.all_reduce(self._flag, dist.ReduceOp.MAX, group=self._group, async_op=True)
        return False

    def settle(self) -> bool:
        """Wait for the message that is under way, and return what it says. A training that ends does so first."""
        if self._work is None:
            return False
        self._work.wait()
        self._work = None
        return bool(self._flag.item())
