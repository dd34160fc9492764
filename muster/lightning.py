"""An orderly stop for PyTorch Lightning: `Trainer(callbacks=[OrderlyStop()])`."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .agreement import Agreement, cpu_group
from .stop import Stop


class OrderlyStop(Callback):  # type: ignore[misc]
    """SIGTERM or Ctrl-C on any rank ends the script on all ranks after the same step, with a checkpoint and code 75.

    Without it, Lightning ends the rank that got SIGTERM without a checkpoint, and the others wait for that rank.
    `path` is the checkpoint's; `fit(ckpt_path=stop.newest)` continues from it. `fit` raises SystemExit: what the script
    does after a training that is done, it does not do after one that was stopped.
    """

    def __init__(self, path: str | Path = "checkpoints/stopped.ckpt") -> None:
        self.path, self.stopped = Path(path), False
        self._stop = Stop()

    @property
    def newest(self) -> Path | None:
        """The checkpoint of the last stop, if there is one."""
        return self.path if self.path.exists() else None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take the signals from Lightning, which has them in the main thread alone."""
        for number in (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ():
            signal.signal(number, signal.SIG_DFL)
        self._stop.listen()
        self._agreement, self._step = Agreement(self._stop, cpu_group()), trainer.global_step

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Agree with the other ranks, once a step.

        `trainer.should_stop` would not do: Lightning goes on to `min_epochs`, or validates first, which may take longer
        than whoever stops the script waits.
        """
        # Between two batches of one step are gradients that no checkpoint has.
        if trainer.accumulate_grad_batches > 1 and trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._agreement.all_stop():
            self.stopped = True
            trainer.save_checkpoint(self.path)
            if trainer.is_global_zero:
                print(f"muster: stopped at step {self._step}, with the checkpoint {self.path}", file=sys.stderr)
            self._agreement.leave()

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Read the last message."""
        self._agreement.settle()
