"""An orderly stop for PyTorch Lightning: `Trainer(callbacks=[OrderlyStop()])`."""

from __future__ import annotations

import signal
from pathlib import Path
from typing import Any

try:
    from lightning.pytorch import Callback
except ImportError:
    from pytorch_lightning import Callback

from .agreement import Agreement, cpu_group
from .stop import Stop


class OrderlyStop(Callback):  # type: ignore[misc]
    """SIGTERM or Ctrl-C on any rank ends the training on all ranks after the same batch, with a checkpoint.

    Without it, Lightning ends the rank that got SIGTERM without a checkpoint, and the others wait for that rank.
    `path` is the checkpoint's; `fit(ckpt_path=stop.newest)` continues from it. `stopped` says whether it was so.
    """

    def __init__(self, path: str | Path = "checkpoints/stopped.ckpt") -> None:
        self.path, self.stopped = Path(path), False
        self._stop = Stop()

    @property
    def newest(self) -> Path | None:
        """The checkpoint of the last stop, if there is one."""
        return self.path if self.path.exists() else None

    def on_train_start(self, trainer: Any, module: Any) -> None:
        """Take the signals from Lightning."""
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        self._stop.listen()
        self._agreement = Agreement(self._stop, cpu_group())

    def on_train_batch_end(self, trainer: Any, module: Any, *_: Any) -> None:
        """Agree with the other ranks, once a batch."""
        if not self.stopped and self._agreement.all_stop():
            self.stopped = trainer.should_stop = True
            trainer.save_checkpoint(self.path)

    def on_train_end(self, trainer: Any, module: Any) -> None:
        """Read the last message."""
        self._agreement.settle()
