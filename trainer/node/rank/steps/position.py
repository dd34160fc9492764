"""At which step of its training a start of a script begins: what its checkpoint says, or its optimizer's own count.

Adam and its relatives have the number of their steps in their state, and a script that continues loads that state. It
is believed as long as it grows with the steps that are counted here, and there is one optimizer.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from .losses import brought, heard


class Position:
    """`offset`: how many steps the optimizer had counted before this start; None as long as that is not known.

    `off`: it cannot be known.
    """

    def __init__(self) -> None:
        self.offset: int | None = None
        self.off = False
        self._optimizer = 0
        self._pending: tuple[int, Any, Any] | None = None

    @property
    def known(self) -> bool:
        """Whether the optimizer's number can be believed so far."""
        return not self.off and self.offset is not None

    def look(self, torch: Any, optimizer: Any, count: int) -> None:
        """An optimizer has made its step `count` of this start. On a GPU, the number is copied and read later."""
        if self.off or self._optimizer not in (0, id(optimizer)):
            self.off = True
            return
        self._optimizer = id(optimizer)
        try:
            if heard(torch):
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
            self._pending = count, *brought(torch, [number.detach()])

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
    """The steps that the optimizer's state counts for the first parameter that has a state."""
    with suppress(StopIteration):
        return next(iter(optimizer.state.values())).get("step")
    return None
