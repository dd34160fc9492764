"""The content of a checkpoint, and how a run continues from it at the same or another world size."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from muster import exchange
from muster.checkpoint import store, trained_parts
from muster.checkpoint.search import Search, newest_of_all_ranks
from muster.errors import CheckpointError

from ..config import Config
from ..run_dir import RankFolder
from .environment import Ranks
from .step import Stepper


@dataclasses.dataclass
class Position:
    """The run's progress: optimizer steps done, and samples that all ranks together have consumed.

    `unevaluated`: the evaluation that is due after this step has not run yet.
    """

    step: int = 0
    consumed: int = 0
    unevaluated: bool = False


def collect(stepper: Stepper, position: Position, config: Config, samples: int) -> dict[str, Any]:
    """The whole state of a run; `samples` is the size of the training set."""
    return {
        **trained_parts.collect(stepper.parts()),
        "scheduler": {k: v for k, v in stepper.scheduler.state_dict().items() if k != "lr_lambdas"},
        "world": stepper.mesh.data_world,
        "position": {name: value for name, value in dataclasses.asdict(position).items() if value is not False},
        "samples": samples,
        "config": dataclasses.asdict(config),
    }


def restore(stepper: Stepper, config: Config, ranks: Ranks, folder: RankFolder, samples: int) -> tuple[Position, float]:
    """Continue from the run folder's newest usable checkpoint, else from `config.resume`, else from step 0.

    A rank on the host that has the newest checkpoint reads it and sends it to the others. Returns the position, and
    when the checkpoint was written. Raises CheckpointError if it has another recipe, seed or data.
    """
    search = _search(config, ranks, folder)
    if search.path is None or search.state is None:
        return Position(), 0.0
    path, state = search.path, search.state
    _check_same(path, state, config, samples)
    _apply(search, stepper)
    position = Position(**state["position"])
    changes = differences(state, config, stepper.mesh.data_world)
    if ranks.first:
        folder.event("resumed", step=position.step, path=path, changes=changes)
    return position, search.created


def _search(config: Config, ranks: Ranks, folder: RankFolder) -> Search:
    """Find the newest checkpoint of this run or, if it has none, the newest in `config.resume`."""
    for place in (folder.checkpoints, Path(config.resume) if config.resume else None):
        if place is None:
            continue
        search = newest_of_all_ranks(place, looks=ranks.local_rank == 0)
        if ranks.first:
            _report(search.damaged, folder)
        if search.path:
            return search
    if config.resume:  # rank 0 raises the reason, and the others wait for its verdict
        exchange.broadcast(bool(store.load(store.locate(Path(config.resume))[0])) if ranks.first else None)
    return Search(None, None, [])


def _report(damaged: list[store.Damaged], folder: RankFolder) -> None:
    for checkpoint in damaged:
        folder.event("checkpoint_damaged", path=str(checkpoint.path), message=checkpoint.reason)


def _check_same(path: str, state: dict[str, Any], config: Config, samples: int) -> None:
    if not {"model", "optimizer", "position", "config", "samples"} <= state.keys():
        raise CheckpointError(
            f"{path}: not a checkpoint of this trainer", "give a run folder or one of its checkpoints"
        )
    then = state["config"]
    if Path(then["recipe"]) != Path(config.recipe):
        raise CheckpointError(
            f"{path}: recipe {then['recipe']} wrote it, but this run's recipe is {config.recipe}",
            f"--recipe {then['recipe']}",
        )
    if then["seed"] != config.seed:
        raise CheckpointError(
            f"{path}: its data order has seed {then['seed']}, but this run has {config.seed}: samples would repeat",
            f"--seed {then['seed']}",
        )
    if state["samples"] != samples:
        raise CheckpointError(
            f"{path}: the run had {state['samples']:,} training samples when it was saved and has {samples:,} now, "
            "so its position in the data is not valid",
            "give it the same data, or start a new run without --resume",
        )


def _apply(search: Search, stepper: Stepper) -> None:
    path, state = search.path or "", search.state or {}
    lambdas = {"lr_lambdas": [None] * len(stepper.scheduler.base_lrs)}
    trained_parts.apply(path, {**state, "scheduler": {**state["scheduler"], **lambdas}}, stepper.parts(), search.shards)


def differences(state: dict[str, Any], config: Config, world: int) -> list[str]:
    """What changed since the checkpoint was written, one sentence for each change."""
    then, changes = state["config"], []
    # An older Muster's checkpoint has a random state for each share of the data instead; they are no longer needed.
    before = state["world"] if "world" in state else len(state["rng"])
    if before != world:
        changes.append(
            f"world size {before} -> {world}: the global batch stays {config.batch}, "
            f"a rank's share is now {config.batch / world:g} instead of {config.batch / before:g}"
        )
    for name, now in dataclasses.asdict(config).items():
        if name != "resume" and name in then and then[name] != now:
            changes.append(f"{name.replace('_', '-')} {then[name]} -> {now}")
    return changes
