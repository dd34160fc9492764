"""Import torch for torchrun, or publish why it cannot be imported: this node's torch may be half installed."""

from __future__ import annotations

import importlib
import sys

from muster.errors import TrainError

from ...verdict import publish_before_training
from .. import variables


def import_torch() -> None:
    """Import what torchrun needs. If that fails, publish the error as the run's verdict and raise it again."""
    try:
        importlib.import_module("torch.distributed.run")
    except Exception as fault:
        message = f"torch cannot be imported here: {type(fault).__name__}: {fault}"
        hint = f"reinstall torch for `{sys.executable}`, or use an image whose torch is complete"
        publish_before_training(TrainError(message, hint), variables.first_rank(), "agent")
        raise
