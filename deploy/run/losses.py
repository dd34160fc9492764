"""Tell once since when the loss of a user's script is no finite number. Pure.

The trainer of Muster's ends such a run itself. A script may train on for hours, and its numbers alone show it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

# One alone may be a step that the script skips.
_IN_A_ROW = 2


@dataclass
class LossWatch:
    """The losses that are not finite in a row: how many, and the step and the value of the first."""

    count: int = 0
    step: int = 0
    value: float = 0.0

    def take(self, step: int, loss: float) -> str:
        """Take the loss of a step. Returns what to tell of it: once, as soon as it lasts."""
        if math.isfinite(loss):
            self.count = self.count if self.count >= _IN_A_ROW else 0
            return ""
        if not self.count:
            self.step, self.value = step, loss
        self.count += 1
        return f"the loss is {self.value} since step {self.step}" if self.count == _IN_A_ROW else ""
