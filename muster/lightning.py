"""A graceful stop for PyTorch Lightning: `Trainer(callbacks=[OrderlyStop()])`."""

from __future__ import annotations

import os
import signal
import sys
from contextlib import suppress
from pathlib import Path
from threading import current_thread, main_thread
from typing import Any

try:
    from lightning.pytorch.callbacks import Callback, ModelCheckpoint
except ImportError:
    from pytorch_lightning.callbacks import Callback, ModelCheckpoint

from .agreement import Agreement, cpu_group
from .stop import Stop


class OrderlyStop(Callback):  # type: ignore[misc]
    """SIGTERM or Ctrl-C on any rank ends the script on all ranks after the same step, with a checkpoint and code 75.

    Without this callback, Lightning ends the rank that got SIGTERM without a checkpoint, and the other ranks wait for
    it. `path` is where the checkpoint goes; `fit(ckpt_path=stop.newest)` continues from it. After a stop, `fit` raises
    SystemExit, so the script does not run the code that follows a finished training.
    """

    def __init__(self, path: str | Path = "checkpoints/stopped.ckpt") -> None:
        self.path, self.stopped, self._behind = Path(path), False, False
        self._stop = Stop()

    @property
    def newest(self) -> Path | None:
        """The checkpoint of the last stop, or a newer one of ModelCheckpoint; None if no training was stopped yet."""
        return self.path if self.path.exists() else None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take over the signal handlers from Lightning, which sets them only in the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT) if current_thread() is main_thread() else ():
            signal.signal(number, signal.SIG_DFL)
        self._stop.listen()
        self._agreement, self._step = Agreement(self._stop, cpu_group()), trainer.global_step

    def on_save_checkpoint(self, trainer: Any, module: Any, checkpoint: Any) -> None:
        """Note that a new checkpoint is about to be written.

        The checkpoint of an earlier stop is then not the newest.
        """
        self._behind = trainer.is_global_zero and self.path.is_file()

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Agree with the other ranks whether to stop, once a step.

        `trainer.should_stop` is not enough: Lightning first continues to `min_epochs`, or validates, which may take
        longer than the caller that stops the script waits.
        """
        self._keep_up(trainer)
        # Between two batches of the same step there are accumulated gradients, which no checkpoint contains.
        if trainer.accumulate_grad_batches > 1 and trainer.global_step == self._step:
            return
        self._step = trainer.global_step
        if self._agreement.all_stop():
            self.stopped = True
            trainer.save_checkpoint(self.path)
            if trainer.is_global_zero:
                print(f"muster: stopped at step {self._step}, with the checkpoint {self.path}", file=sys.stderr)
            self._agreement.leave()

    def _keep_up(self, trainer: Any) -> None:
        """Link the training's newest checkpoint to the stop checkpoint's path, which is the same on every host."""
        if not self._behind:
            return
        self._behind = False
        files = [self.path]
        for each in trainer.checkpoint_callbacks:
            if isinstance(each, ModelCheckpoint) and not each.save_weights_only:
                files += map(Path, (each.best_model_path, each.last_model_path, *each.best_k_models))
        with suppress(OSError):
            newest = max(filter(Path.is_file, files), key=lambda file: file.stat().st_mtime)
            if not newest.samefile(self.path):
                part = self.path.with_suffix(".part")
                part.unlink(missing_ok=True)
                os.link(newest, part)
                part.replace(self.path)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Finish the last exchange with the other ranks."""
        self._keep_up(trainer)
        self._agreement.settle()
