"""At which step of the training a start of a script begins: its checkpoint's, its optimizer's count, or 0.

Adam and similar optimizers have the number of their steps in their state, and a script that continues loads that state.
The number is trusted as long as it grows with the steps that are counted here, and there is only one optimizer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from ..place import Before
from .losses import copy_from_gpu, would_be_noticed
from .steps import Steps

# The names that scripts give the step number in a checkpoint.
_SAVED_STEPS = ("step", "global_step", "iter_num", "iteration", "iter", "steps")


class Position:
    """The step at which this start begins, from the optimizer and from what the script loads.

    `offset`: how many steps the optimizer had counted before this start; None as long as that is unknown. `off`: it
    cannot be known. `empty`: the first optimizer had no state before its first step.
    """

    def __init__(self) -> None:
        self.offset: int | None = None
        self.off = self.empty = self._loaded = False
        self._saved = 0  # the step number in a checkpoint that the script has loaded
        self._optimizer = 0
        self._pending: tuple[int, Any, Any] | None = None

    @property
    def is_known(self) -> bool:
        """Whether the optimizer's step number is known, and trusted so far."""
        return not self.off and self.offset is not None

    def loaded(self, result: Any) -> None:
        """Take what the script has loaded: it may be a checkpoint with a step number."""
        self._loaded = True
        if isinstance(result, dict):
            saved = [result[name] for name in _SAVED_STEPS if type(result.get(name)) is int]
            if saved:
                self._saved = saved[0]

    def begins(self, earlier: Before, steps: Steps, last: bool) -> tuple[int, dict[str, Any]] | None:
        """After which step of the run this start begins, and, if there were steps before, the event that reports it.

        None as long as the optimizer may still show that, unless the process ends now (`last`). If the optimizer keeps
        no count, the steps are numbered after those of earlier starts.
        """
        before, offset = earlier.step, self.offset or 0
        if before and not earlier.another and self.empty and not self._loaded and steps.count:
            # The script loaded nothing, and its optimizer had no state: it begins where the first start began.
            return 0, {"step": 0, "before": before, "known": True, "anew": True}
        # After the first step, another optimizer may still step, and a number may still be on its way from the GPU.
        waits = self.offset is None or (steps.count < 2 and (before or offset))
        if waits and not (last or self.off or steps.several):
            return None
        known = self.is_known and not steps.several and (not before or (earlier.own and bool(offset)))
        step = offset if known else before
        if not known and not offset and 0 < self._saved <= before:
            known, step = True, self._saved
        if earlier.another and not known:  # another program made the earlier steps: this one counts from 0
            return 0, {"step": 0, "before": before, "known": True, "another": True}
        event = {"step": step, "before": before, "known": known}
        if self.empty and before and not known:
            event["empty"] = True
        return step, event if before or step else {}

    def observe(self, torch: Any, optimizer: Any, count: int) -> None:
        """Read the optimizer's step number at step `count` of this start. On a GPU, it is copied, and read later."""
        if self.off or self._optimizer not in (0, id(optimizer)):
            self.off = True
            return
        self._optimizer = id(optimizer)
        try:
            if would_be_noticed(torch):
                return
            if self._pending:
                self._settle(torch)
            else:
                self._begin(torch, _number(optimizer), count)
        except Exception:
            self.off = True

    def _begin(self, torch: Any, number: Any, count: int) -> None:
        if isinstance(number, (int, float)):
            self._take(int(number) - count)
        elif type(number) is not torch.Tensor or number.numel() != 1:
            self.off = True
        elif number.device.type == "cpu":
            self._take(int(number) - count)
        elif number.device.type != "cuda":
            self.off = True
        elif not torch.cuda.is_current_stream_capturing():
            self._pending = count, *copy_from_gpu(torch, [number.detach()])

    def _settle(self, torch: Any) -> None:
        if self._pending and not torch.cuda.is_current_stream_capturing():
            count, here, come = self._pending
            if come.query():
                self._pending = None
                self._take(int(here.tolist()[0]) - count)

    def _take(self, offset: int) -> None:
        self.off = offset < 0 or self.offset not in (None, offset)
        self.offset = offset


def _number(optimizer: Any) -> Any:
    """The step number in the optimizer's state for the first parameter that has a state."""
    with suppress(StopIteration):
        return next(iter(optimizer.state.values())).get("step")
    return None
