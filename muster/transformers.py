"""An orderly stop for the Hugging Face Trainer: `Trainer(callbacks=[OrderlyStop()])`."""

from __future__ import annotations

from typing import Any

from transformers import TrainerCallback

from .agreement import Agreement, cpu_group
from .stop import Stop


class OrderlyStop(TrainerCallback):  # type: ignore[misc]
    """SIGTERM or Ctrl-C on any rank ends the training on all ranks after the same step, with a checkpoint.

    `train(resume_from_checkpoint=get_last_checkpoint(output_dir))` continues from it. `stopped` says whether it was so.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._stop = Stop()

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Listen from now on."""
        self._stop.listen()
        self._agreement = Agreement(self._stop, cpu_group())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Agree with the other ranks, once a step."""
        if not self.stopped and self._agreement.all_stop():
            self.stopped = control.should_save = control.should_training_stop = True

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Read the last message."""
        self._agreement.settle()
