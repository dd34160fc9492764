"""Starts ranks that run cases of the trainer on a mesh, one after the other (ranks.py says what a case is)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks.venv import HOME
from lab.ports import free_port

# Each recipe, and the same with a plan that cuts the sequence as well. A run continues only with its own recipe.
SMALL = (str(HOME / "lab" / "sequence_recipe.py"),) * 2
TEXT = ("text", str(HOME / "benchmarks" / "mesh" / "sequence_text.py"))
# Each mesh of so many ranks: its axes, and whether the recipe's plan cuts the sequence as well.
MESHES: dict[int, dict[str, tuple[str, bool]]] = {
    1: {"one process": ("", False)},
    2: {"DDP": ("", False), "FSDP2": ("dp_shard=2", False), "TP": ("tp=2", False), "TP+SP": ("tp=2", True)},
    3: {"DDP": ("", False), "FSDP2": ("dp_shard=3", False)},  # four heads are no three parts
    4: {
        "DDP": ("", False),
        "FSDP2": ("dp_shard=4", False),
        "HSDP": ("dp_replicate=2,dp_shard=2", False),
        "TP": ("tp=4", False),
        "TP+SP": ("tp=4", True),
        "FSDP2xTP": ("dp_shard=2,tp=2", False),
        "DDPxTP": ("dp_replicate=2,tp=2", False),
    },
}


def peers(world: int, name: str) -> int:
    """How many ranks of the mesh read the same samples."""
    axes = MESHES[world][name][0]
    return int(axes.rpartition("tp=")[2]) if "tp=" in axes else 1


def case(
    do: str,
    folder: Path,
    world: int,
    name: str,
    *arguments: object,
    recipes: tuple[str, str] = SMALL,
    **more: Any,
) -> dict[str, Any]:
    """What ranks.py shall do on a mesh; `arguments` are the trainer's."""
    axes, sequence = MESHES[world][name]
    options = ["--recipe", recipes[sequence], *map(str, arguments)]
    options += ["--mesh", axes] if axes else []
    return {"do": do, "folder": str(folder), "arguments": options, "sequence": sequence, **more}


def losses(folder: Path) -> list[float]:
    """The loss of each step in the run folder, in order."""
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    by_step = {line["step"]: line["loss"] for line in lines if "loss" in line}
    return [by_step[step] for step in sorted(by_step)]


def run(world: int, cases: list[dict[str, Any]], limit_s: float = 900.0) -> None:
    """Run the cases in one start of `world` ranks. Raises RuntimeError, with the last lines, if the ranks fail."""
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    command += [f"--master-port={free_port()}", "-m", "benchmarks.mesh.ranks", json.dumps(cases)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ended = subprocess.run(
        command, cwd=HOME, env=variables, capture_output=True, text=True, timeout=limit_s, check=False
    )
    if ended.returncode:
        raise RuntimeError(f"{world} ranks: exit code {ended.returncode}\n{ended.stderr[-3000:]}")
