"""torch.distributed.checkpoint as its documentation shows it, for the model and the optimizer of a training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.distributed.tensor import DTensor

_FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


def save(stepper: Any, path: Path) -> None:
    """Each rank writes its part into the folder `path`, which all see."""
    model, optimizer = get_state_dict(stepper.model, stepper.optimizer, options=_FLAT)
    dcp.save({"model": model, "optimizer": optimizer}, checkpoint_id=path)


def load(stepper: Any, path: Path) -> str:
    """Overwrite weights and moments, then load them; the error in words, empty if nothing was raised."""
    model, optimizer = overwrite(stepper)
    state = {"model": model, "optimizer": optimizer}
    try:
        dcp.load(state, checkpoint_id=path)
        set_state_dict(
            stepper.model,
            stepper.optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optimizer"],
            options=_FLAT,
        )
    except (Exception, CheckpointException) as error:  # DCP's own is no Exception
        return f"{type(error).__name__}: {str(error).strip().splitlines()[0][:200]}"
    return ""


def overwrite(stepper: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """The state of model and optimizer, every number of it 7: what is not loaded shows."""
    model, optimizer = get_state_dict(stepper.model, stepper.optimizer, options=_FLAT)
    with torch.no_grad():
        for value in (*model.values(), *optimizer.values()):
            if isinstance(value, torch.Tensor) and value.is_floating_point():
                (value.to_local() if isinstance(value, DTensor) else value).fill_(7.0)
    return model, optimizer


def whole(path: Path) -> dict[str, torch.Tensor]:
    """Empty tensors for all that a good checkpoint has."""
    known = dcp.FileSystemReader(path).read_metadata().state_dict_metadata
    return {
        name: torch.empty(facts.size, dtype=facts.properties.dtype)
        for name, facts in known.items()
        if hasattr(facts, "size")
    }


def load_alone(like: dict[str, torch.Tensor], path: Path) -> dict[str, torch.Tensor] | None:
    """All tensors in one process; None if DCP raised."""
    state = {name: torch.empty_like(value) for name, value in like.items()}
    try:
        dcp.load(state, checkpoint_id=path, no_dist=True)
    except (Exception, CheckpointException):
        return None
    return state
