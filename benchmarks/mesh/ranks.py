"""What each rank of a figure about meshes does, for each case that it is given; runs.py starts it.

`do` of a case is one of these: `train` trains. `save` trains to a stop, and writes what the live tensors were, put
together by torch, beside a checkpoint of DCP. `load` compares every tensor on another mesh, first as Muster has loaded
it, then as DCP has. `damage` spoils checkpoints.
`weigh` trains, and writes the bytes of parameters and optimizer that this rank has. `elsewhere` loads DCP's checkpoint
from the next rank's folder. `speed` lets rivals train in turns. `build` builds a model, and writes the most memory that
it took.
"""

from __future__ import annotations

import json
import logging
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.tensor import DTensor

from benchmarks.mesh import damage, dcp_rival, memory, speed
from lab import mesh_runs
from muster import exchange
from muster.checkpoint import cut, parts
from trainer.config import parse
from trainer.train import state
from trainer.train.environment import discover
from trainer.train.loop import Training
from trainer.train.process_group import joined


def main() -> None:
    """Run each of the given cases on this rank."""
    warnings.simplefilter("ignore")
    logging.disable(logging.ERROR)
    ranks = discover()
    with joined(parse(["--join-timeout", "120"]), ranks) as group:
        for case in json.loads(sys.argv[1]):
            if case["do"] == "damage":
                damage.of_rank(case, ranks.rank)
                continue
            os.environ["WHOLE_SEQUENCE"] = "0" if case["sequence"] else "1"
            own, folder = mesh_runs.place(case, ranks)
            exchange.gather(0)
            if case["do"] == "build":
                memory.build(case, folder, group.device)
                continue
            training = mesh_runs.build(case, own, group, folder)
            try:
                _DO[case["do"]](case, training, folder)
            finally:
                training.close()
            exchange.gather(0)


def _train(case: dict[str, Any], training: Training, folder: Path) -> None:
    training.run()


def _save(case: dict[str, Any], training: Training, folder: Path) -> None:
    training.run()
    tensors = _together(training)
    if training.ranks.first:
        torch.save(tensors, case["reference"])
    dcp_rival.save(training.stepper, folder / "dcp")
    if case.get("rivals") and _in_parts(training):
        for name, rival in _rivals().items():
            rival.save(training.stepper, folder / name)


def _load(case: dict[str, Any], training: Training, folder: Path) -> None:
    reference = torch.load(case["reference"], weights_only=True)
    state.restore(training.stepper, training.config, training.ranks, training.folder, training.samples)
    ours = _same(reference, _together(training))
    error = dcp_rival.load(training.stepper, Path(case["dcp"]))
    theirs = 0 if error else _same(reference, _together(training))
    facts = {"tensors": len(reference), "ours": ours, "dcp": theirs, "dcp_error": error}
    if _in_parts(training) and Path(case["fabric"]).exists():
        for name, rival in _rivals().items():
            fault = rival.load(training.stepper, Path(case[name]))
            facts |= {name: 0 if fault else _same(reference, _together(training)), f"{name}_error": fault}
    if training.ranks.first:
        (folder / "compared.json").write_text(json.dumps(facts))


def _in_parts(training: Training) -> bool:
    """Whether a rank has parts of weights."""
    return any(isinstance(weight, DTensor) for weight in training.stepper.model.parameters())


def _rivals() -> dict[str, Any]:
    """The modules of those that take models in parts; only a few cases need them, and they take seconds to import."""
    from benchmarks.mesh import accelerate_rival, fabric_rival

    return {"fabric": fabric_rival, "accelerate": accelerate_rival}


def _elsewhere(case: dict[str, Any], training: Training, folder: Path) -> None:
    error = dcp_rival.load(training.stepper, folder / "dcp")
    if training.ranks.first:
        Path(case["answer"]).write_text(error)


def _speed(case: dict[str, Any], training: Training, folder: Path) -> None:
    speed.of_rank(training, folder)


def _weigh(case: dict[str, Any], training: Training, folder: Path) -> None:
    training.run()
    held: list[int] = []

    def add(_: cut.Path, tensor: torch.Tensor) -> None:
        local = tensor.to_local() if isinstance(tensor, DTensor) else tensor
        held.append(local.untyped_storage().nbytes())

    collected = parts.collect(training.stepper.parts())
    cut.replace({name: collected[name] for name in ("model", "optimizer")}, add)
    (folder / f"bytes-{training.ranks.rank}").write_text(str(sum(held)))


def _together(training: Training) -> dict[str, torch.Tensor]:
    """Every tensor of the model and the optimizer, whole, by its path."""
    tensors: dict[str, torch.Tensor] = {}

    def note(path: cut.Path, tensor: torch.Tensor) -> None:
        whole = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        tensors[json.dumps(path)] = whole.detach().clone()

    collected = parts.collect(training.stepper.parts())
    cut.replace({name: collected[name] for name in ("model", "optimizer")}, note)
    return tensors


def _same(reference: dict[str, torch.Tensor], here: dict[str, torch.Tensor]) -> int:
    """How many tensors are the same to the last bit on every rank."""
    flags = torch.tensor([name in here and _equal(value, here[name]) for name, value in reference.items()])
    flags = flags & (len(here) == len(reference))
    dist.all_reduce(counts := flags.int(), dist.ReduceOp.MIN)
    return int(counts.sum())


def _equal(one: torch.Tensor, other: torch.Tensor) -> bool:
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    return torch.equal(*(value.contiguous().view(-1).view(torch.uint8) for value in (one, other)))


_DO = {"train": _train, "save": _save, "load": _load, "weigh": _weigh, "elsewhere": _elsewhere, "speed": _speed}

if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads at times crash an interpreter on its way out
