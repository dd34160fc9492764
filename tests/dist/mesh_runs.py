"""Several runs of the trainer in one start of ranks, because importing torch takes longer than a short run.

    torchrun --nproc-per-node 4 -m tests.dist.mesh_runs '[{"folder": "a", "arguments": ["--mesh", "dp_shard=4"]}]'

In a folder's name, RANK stands for the rank and NEXT for the rank after it: with one of them, each rank is a host with
its own disk. `flip` and `remove` list files that rank 0 damages before the run. With `compare`, the path of a
checkpoint, the run only loads it, and rank 0 writes to `compared` how many of its tensors are the same to the last
bit. `stop_after` is the number of steps after which a stop is requested. A run that raises leaves `refused-<rank>`
with the error; the next runs still start.
"""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from muster import exchange
from muster.checkpoint import cut, randomness, store, trained_parts
from muster.errors import TrainError
from trainer import mesh, recipe
from trainer.config import parse
from trainer.run_dir import RankFolder
from trainer.train import state
from trainer.train.environment import discover
from trainer.train.loop import Training
from trainer.train.process_group import joined


def main() -> None:
    """Run each of the given cases on this rank."""
    ranks = discover()
    with joined(parse(["--join-timeout", "60"]), ranks) as group:
        for case in json.loads(sys.argv[1]):
            _run(case, ranks, group)


def place(case: dict[str, Any], ranks: Any) -> tuple[Any, Path]:
    """The rank's place in the run, and its folder; if each rank has its own folder, each rank is a host."""
    if "RANK" in case["folder"] or "NEXT" in case["folder"]:
        ranks = dataclasses.replace(ranks, local_rank=0, node=f"host-{ranks.rank}")
        os.environ["MUSTER_NODE"] = ranks.node
    named = case["folder"].replace("RANK", str(ranks.rank)).replace("NEXT", str((ranks.rank + 1) % ranks.world))
    folder = Path(named)
    (folder / "ranks").mkdir(parents=True, exist_ok=True)
    os.environ["SEEN"] = str(folder)
    return ranks, folder


def _run(case: dict[str, Any], ranks: Any, group: Any) -> None:
    ranks, folder = place(case, ranks)
    if ranks.first:
        _spoil(case)
    exchange.gather(0)
    try:
        training = build(case, ranks, group, folder)
        try:
            if "compare" in case:
                _compare(case, training, folder)
                return
            end = training.run()
        finally:
            training.close()
        (folder / f"end-{ranks.rank}").write_text(f"{end.verdict} {end.step}")
    except TrainError as fault:
        (folder / f"refused-{ranks.rank}").write_text(f"{fault.message}\n{fault.hint}")


def build(case: dict[str, Any], ranks: Any, group: Any, folder: Path) -> Training:
    """Build the training of a case as a rank of the trainer builds it."""
    config = parse(["--join-timeout", "60", *case["arguments"]])
    mesh.parse(config.mesh, ranks.world)
    randomness.seed_all(config.seed)
    loaded = recipe.load(config.recipe)
    data = recipe.build_datasets(loaded, None)
    steps = iter([False] * case.get("stop_after", 0))
    asked = (lambda: next(steps, True)) if "stop_after" in case else (lambda: False)
    own = RankFolder(folder, ranks.rank, ranks.node)
    return Training(config, loaded, data, group, ranks, own, lambda line: None, lambda line: None, asked)


def _spoil(case: dict[str, Any]) -> None:
    for name in case.get("flip", ()):
        content = bytearray(Path(name).read_bytes())
        content[len(content) // 2] ^= 1
        Path(name).write_bytes(content)
    for name in case.get("remove", ()):
        shutil.rmtree(name) if Path(name).is_dir() else Path(name).unlink()


def _compare(case: dict[str, Any], training: Training, folder: Path) -> None:
    state.restore(training.stepper, training.config, training.ranks, training.folder, training.samples)
    here = trained_parts.collect(training.stepper.parts())
    saved = store.load(Path(case["compare"]))[0]
    same = []

    def look(path: cut.Path, tensor: torch.Tensor) -> None:
        value = tensor.full_tensor() if isinstance(tensor, DTensor) else tensor
        then = saved
        for key in path:
            then = then[key]
        same.append(torch.equal(value, then))  # type: ignore[arg-type]

    cut.replace(here, look)
    count = len(here["optimizer"]["state"])
    if training.ranks.first:
        (folder / "compared").write_text(f"{sum(same)} of {len(same)} tensors, moments of {count} weights")


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # gloo's threads sometimes crash an interpreter that shuts down
