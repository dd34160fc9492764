"""Report a script's loss that stays infinite or NaN. Muster's own trainer ends by itself in that case. Pure."""

import math
from dataclasses import dataclass

# A single loss that is not finite may come from a step that the script then skips.
_IN_A_ROW = 2


@dataclass
class LossWatch:
    """How many losses in a row are not finite, and the step and the value of the first of them."""

    count: int = 0
    step: int = 0
    value: float = 0.0

    def take(self, step: int, loss: float) -> str:
        """Record the loss of a step. Returns a sentence, once, as soon as two losses in a row are not finite."""
        if math.isfinite(loss):
            self.count = self.count if self.count >= _IN_A_ROW else 0
            return ""
        if not self.count:
            self.step, self.value = step, loss
        self.count += 1
        return f"the loss is {self.value} since step {self.step}" if self.count == _IN_A_ROW else ""
