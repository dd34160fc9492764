"""Bytes of parameters and optimizer that a rank has of 100 million weights: FSDP2 against DDP, on two ranks.

And the most memory that each rank takes to build such a model, beyond what the process had before. Muster tries a plan
for tensor parallelism on the CPU; `--trust-plan` leaves this out, and shows the building alone.

python -m benchmarks.mesh.memory [--quick]
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from benchmarks.mesh.runs import case, run
from trainer import mesh as meshes
from trainer import recipe
from trainer.train import strategy
from trainer.train.strategy import fsdp  # noqa: F401 - its first import takes memory

RECIPE = str(Path(__file__).with_name("wide_recipe.py"))
REACH = 0.55
BUILT = (("FSDP2", "FSDP2", True), ("TP", "TP", False), ("TP, --trust-plan", "TP", True))


def measure(quick: bool) -> dict[str, Any]:
    """The larger rank's bytes after two steps, of each of the two."""
    with nodes.scratch() as scratch:
        held, rows = {}, []
        for name, mesh, trust in BUILT:
            run(2, [case("build", scratch / name, 2, mesh, recipes=(RECIPE, RECIPE), trust=trust)])
            took = [int((scratch / name / f"built-{rank}").read_text()) / 1e6 for rank in (0, 1)]
            rows.append(Row(f"most memory to build 100 M weights (403 MB), {name}: rank 0, rank 1",
                            f"{took[0]:,.0f}, {took[1]:,.0f} MB"))  # fmt: skip
        for name in ("DDP", "FSDP2"):
            run(2, [case("weigh", scratch / name, 2, name, recipes=(RECIPE, RECIPE))])
            held[name] = max(int((scratch / name / f"bytes-{rank}").read_text()) for rank in (0, 1))
    ratio = held["FSDP2"] / held["DDP"]
    row = Row(
        "parameters and AdamW state a rank has of 100 M weights, FSDP2 on 2 ranks",
        f"{held['FSDP2'] / 1e6:,.0f} MB",
        f"DDP {held['DDP'] / 1e6:,.0f} MB",
        f"{ratio:.2f}x",
        f"<= {REACH}x",
        ratio <= REACH,
    )
    return result([row, *rows], ["the first is the bytes of the tensors' memory, not of the process"])


def build(case: dict[str, Any], folder: Path, device: torch.device) -> None:
    """Build and cut the model on this rank, as the trainer does before its first step; writes the bytes it took."""
    torch.manual_seed(0)  # all ranks try a plan with the same batch
    mesh, loaded = meshes.parse(case["arguments"][3], 2), recipe.load(RECIPE)
    batch = [sample[:2] for sample in loaded.datasets(None)[0].tensors]  # type: ignore[attr-defined]
    try_loss = None if case["trust"] else lambda model: loaded.loss(model, batch)
    # What the process had at most is forgotten here: proc(5), clear_refs.
    Path("/proc/self/clear_refs").write_text("5")
    before, model = _resident("VmRSS"), strategy.build_on(mesh, loaded.model)
    plan = recipe.build_plan(loaded, model) if mesh.tp > 1 else None
    kept = strategy.choose(mesh, model, device, plan, try_loss)
    (folder / f"built-{dist.get_rank()}").write_text(str(_resident("VmHWM") - before))
    del kept


def _resident(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


if __name__ == "__main__":
    alone(measure, __doc__)
