"""Accelerate's sharded checkpoint of FSDP2, by the functions that its `save_state` calls, of the same live training.

On CPUs Accelerate leaves its plugin for FSDP2 out: its state is set to what it has on GPUs. It gets the model as it is
cut already, and takes none that is not.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from accelerate import Accelerator, DistributedType, FullyShardedDataParallelPlugin
from accelerate.utils import load_fsdp_model, load_fsdp_optimizer, save_fsdp_model, save_fsdp_optimizer
from torch.distributed.checkpoint import CheckpointException

from benchmarks.mesh.dcp_rival import overwrite


def save(stepper: Any, path: Path) -> None:
    """Each rank writes its part into the folder `path`, which all see."""
    plugin, runs = _accelerate()
    save_fsdp_model(plugin, runs, stepper.model, path)
    save_fsdp_optimizer(plugin, runs, stepper.optimizer, stepper.model, path)


def load(stepper: Any, path: Path) -> str:
    """Overwrite weights and moments, then load them; the error in words, empty if nothing was raised."""
    plugin, runs = _accelerate()
    overwrite(stepper)
    try:
        load_fsdp_model(plugin, runs, stepper.model, path)
        load_fsdp_optimizer(plugin, runs, stepper.optimizer, stepper.model, path)
    except (Exception, CheckpointException) as error:  # DCP's own is no Exception
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    return ""


@cache
def _accelerate() -> tuple[FullyShardedDataParallelPlugin, Any]:
    plugin = FullyShardedDataParallelPlugin(
        fsdp_version=2, state_dict_type="SHARDED_STATE_DICT", cpu_ram_efficient_loading=False
    )
    runs: Any = Accelerator(cpu=True, fsdp_plugin=plugin)
    runs.state.distributed_type, runs.state.fsdp_plugin = DistributedType.FSDP, plugin
    return plugin, runs
