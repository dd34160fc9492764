"""Recipe `digits` with contiguous weights, for `throughput`."""

from __future__ import annotations

import torch
from torch import nn

from muster.trainer.recipes import digits
from muster.trainer.recipes.digits import datasets as datasets
from muster.trainer.recipes.digits import loss as loss
from muster.trainer.recipes.digits import metrics as metrics

DEFAULTS = {"steps": 600, "batch": 96, "lr": 5e-3}


def model() -> nn.Module:
    """The net of `digits`, in the layout that PyTorch gives it."""
    return digits.model().to(memory_format=torch.contiguous_format)
