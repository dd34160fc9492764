"""A graceful stop for the Hugging Face Trainer: `Trainer(callbacks=[OrderlyStop()])`."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from transformers import TrainerCallback

from .agreement import Agreement, cpu_group
from .stop import Stop


class OrderlyStop(TrainerCallback):  # type: ignore[misc]
    """SIGTERM or Ctrl-C on any rank ends the script on all ranks after the same step, with a checkpoint and code 75.

    `train(resume_from_checkpoint=stop.newest)` continues from it. After a stop, `train` raises SystemExit, so the
    script does not run the code that follows a finished training.
    """

    def __init__(self) -> None:
        self.stopped = False
        self._stop, self._folder = Stop(), ""

    @property
    def newest(self) -> str | None:
        """The newest whole checkpoint of the Trainer that has this callback; None if there is none."""
        # The Trainer writes this file last: a kill leaves a folder without this file, or with a part of it; no training
        # can continue from such a folder.
        steps: dict[int, str | None] = {0: None}
        for state in Path(self._folder).glob("checkpoint-*/trainer_state.json") if self._folder else ():
            with suppress(OSError, ValueError):
                json.loads(state.read_bytes())
                steps[int(state.parent.name.removeprefix("checkpoint-"))] = str(state.parent)
        return steps[max(steps)]

    def on_init_end(self, args: Any, *_: Any, **__: Any) -> None:
        """Remember the folder of the checkpoints."""
        self._folder = args.output_dir

    def on_train_begin(self, *_: Any, **__: Any) -> None:
        """Listen for signals from now on."""
        self._stop.listen()
        self._agreement = Agreement(self._stop, cpu_group())

    def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """Agree with the other ranks, once a step."""
        if self._agreement.all_stop():
            self.stopped = control.should_save = control.should_training_stop = True
            # An evaluation may take longer than the caller that stops the script waits.
            control.should_evaluate = False

    def on_save(self, args: Any, state: Any, control: Any, **_: Any) -> None:
        """End with the stop's checkpoint: after its loop, the Trainer might evaluate and save once more."""
        if self.stopped:
            if state.is_world_process_zero:
                where = f"{args.output_dir}/checkpoint-{state.global_step}"
                print(f"muster: stopped at step {state.global_step}, with the checkpoint {where}", file=sys.stderr)
            self._agreement.leave()

    def on_train_end(self, *_: Any, **__: Any) -> None:
        """Finish the last exchange with the other ranks."""
        self._agreement.settle()
