"""Lightning Fabric's sharded checkpoint, as its page about model parallelism shows it, of the same live training.

Fabric gets the model as it is cut already. It takes none that is not: of a whole model it writes another file.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import torch.distributed as dist
from lightning.fabric import Fabric
from lightning.fabric.strategies import ModelParallelStrategy
from torch.distributed.checkpoint import CheckpointException

from benchmarks.mesh.dcp_rival import overwrite


def save(stepper: Any, path: Path) -> None:
    """Each rank writes its part into the folder `path`, which all see."""
    _fabric().save(path, _set_up(stepper))


def load(stepper: Any, path: Path) -> str:
    """Overwrite weights and moments, then load them; the error in words, empty if nothing was raised."""
    try:
        state = _set_up(stepper)
        overwrite(stepper)
        _fabric().load(path, state)
    except (Exception, CheckpointException) as error:  # DCP's own is no Exception
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    return ""


@cache
def _fabric() -> Fabric:
    world = dist.get_world_size()
    strategy = ModelParallelStrategy(lambda model, mesh: model, data_parallel_size=world, tensor_parallel_size=1)
    runs = Fabric(accelerator="cpu", devices=world, strategy=strategy)
    runs.launch()
    return runs


def _set_up(stepper: Any) -> dict[str, Any]:
    runs = _fabric()
    model = runs.setup(stepper.model, move_to_device=False)
    return {"model": model, "optimizer": runs.setup_optimizers(stepper.optimizer)}
