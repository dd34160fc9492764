"""When a loss that is no finite number is told: once it lasts. Of scripts; Muster's trainer ends by itself. Pure."""

import math
from dataclasses import dataclass

# One loss alone that is no finite number may be of a step that the script skips.
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
