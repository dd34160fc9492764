"""The small recipe with sequence parallelism: each rank has a part of the sequence between the sharded layers.

Tensor parallelism shards those layers. With WHOLE_SEQUENCE=1 the plan is that of the small recipe: a run may continue
with the other plan of the two.
"""

import os

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    PrepareModuleOutput,
    RowwiseParallel,
    SequenceParallel,
)

from tests.dist import mesh_recipe
from tests.dist.mesh_recipe import *  # noqa: F403 - all but the plan

DEFAULTS = {
    "steps": 8,
    "batch": 12,
    "lr": 0.01,
    "clip": 0.1,
    "warmup": 2,
    "log_every": 1,
    "eval_every": 0,
    "checkpoint_every": 4,
}


def tensor_plan(model):
    if os.environ.get("WHOLE_SEQUENCE") == "1":
        return mesh_recipe.tensor_plan(model)
    whole, part = Replicate(), Shard(1)
    return {
        "table": PrepareModuleOutput(output_layouts=whole, desired_output_layouts=part),
        "blocks.*.norm*": SequenceParallel(),
        "blocks.*.by_head": ColwiseParallel(input_layouts=part),
        "blocks.*.mix": RowwiseParallel(output_layouts=part),
        "blocks.*.think.0": ColwiseParallel(input_layouts=part),
        "blocks.*.think.2": RowwiseParallel(output_layouts=part),
        "norm": PrepareModuleInput(input_layouts=part, desired_input_layouts=whole, use_local_output=True),
    }
