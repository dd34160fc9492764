"""A recipe with 10 MB of state: 837,000 weights, each with AdamW's two moments, on the data of `digits`."""

from __future__ import annotations

from torch import nn

from muster.trainer.recipes.digits import datasets as datasets
from muster.trainer.recipes.digits import loss as loss
from muster.trainer.recipes.digits import metrics as metrics


def model() -> nn.Module:
    """A net of two hidden layers: images (batch, 1, 8, 8) in, class scores (batch, 10) out."""
    wide = 876
    return nn.Sequential(
        nn.Flatten(), nn.Linear(64, wide), nn.ReLU(), nn.Linear(wide, wide), nn.ReLU(), nn.Linear(wide, 10)
    )
