"""Recipe `text`, with a plan that cuts the sequence between the layers of a block as well (docs/parallel.md)."""

from __future__ import annotations

from typing import Any

from torch import nn
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
)

from muster.trainer.recipes.text import *  # noqa: F403 - all but the plan

DEFAULTS = {"steps": 300, "batch": 24, "lr": 2e-3}


def tensor_plan(model: nn.Module) -> dict[str, Any]:
    """As the plan of `text`, and each rank has a part of the sequence where a block adds and normalizes."""
    whole, part = Replicate(), Shard(1)
    return {
        "blocks": PrepareModuleInput(input_layouts=whole, desired_input_layouts=part, use_local_output=True),
        "blocks.*.norm_*": SequenceParallel(),
        "blocks.*.by_head": ColwiseParallel(input_layouts=part),
        "blocks.*.mix": RowwiseParallel(output_layouts=part),
        "blocks.*.think.0": ColwiseParallel(input_layouts=part),
        "blocks.*.think.2": RowwiseParallel(output_layouts=part),
        "norm": PrepareModuleInput(input_layouts=part, desired_input_layouts=whole, use_local_output=True),
    }
