"""Wrong plans for tensor parallelism: refused before the first step? And what does torch do with them?

    python -m benchmarks.mesh.plans

Each plan of lab/tensor_plans.py changes a good one. With `--trust-plan` the trainer takes a plan as it is: it calls
torch's `parallelize_module`, as a loop by hand does, and that is the rival. Its losses are compared with those of one
process that has the whole model.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.mesh.runs import losses
from benchmarks.venv import HOME
from lab import tensor_plans
from lab.ports import free_port

STEPS, SAME, LIMIT_S = 8, 1e-5, 90


def measure(quick: bool) -> dict[str, Any]:
    """How many of the wrong plans Muster refuses with no step, and how many torch refuses, or trains wrongly with."""
    with nodes.scratch() as scratch:
        plans = tensor_plans.wrong(scratch)
        refused = [name for name, path in plans.items() if _refused(scratch, name, path)]
        ways = {name: _by_torch(scratch, name, path) for name, path in plans.items()}
    for name, way in ways.items():
        say(f"{name}: {'refused' if name in refused else 'NOT refused'}; torch: {way}")
    raised, hung, wrong = (list(ways.values()).count(way) for way in ("raises", "hangs", "other losses"))
    count = len(plans)
    rival = f"parallelize_module raises for {raised}, hangs with {hung}, trains to other losses with {wrong}"
    row = Row("wrong plans for tensor parallelism refused before the first step", f"{len(refused)} of {count}", rival,
              "", f"{count} of {count}", len(refused) == count)  # fmt: skip
    return result(
        [row], [f"losses: {STEPS} steps of 2 ranks, fp32, against one process; other: more than {SAME} apart"]
    )


def _refused(scratch: Path, name: str, path: str) -> bool:
    folder = scratch / f"tried-{name}"
    _train(2, folder, "--recipe", path, "--mesh", "tp=2")
    return (folder / "refused-0").exists() and not (folder / "metrics.jsonl").exists()


def _by_torch(scratch: Path, name: str, path: str) -> str:
    """What becomes of a run that trusts the plan: `raises`, `hangs`, `other losses` or `same losses`."""
    whole, folder = scratch / f"whole-{name}", scratch / f"trusted-{name}"
    _train(1, whole, "--recipe", path)
    code = _train(2, folder, "--recipe", path, "--mesh", "tp=2", "--trust-plan")
    if code is None:
        return "hangs"
    if code or (folder / "refused-0").exists():
        return "raises"
    pairs = zip(losses(folder), losses(whole), strict=True)
    return "same losses" if all(abs(ours - one) <= SAME * abs(one) for ours, one in pairs) else "other losses"


def _train(world: int, folder: Path, *arguments: str) -> int | None:
    """The exit code of so many ranks; None if they did not end in time."""
    cases = [{"folder": str(folder), "arguments": [*arguments, "--steps", str(STEPS)]}]
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={world}"]
    command += [f"--master-port={free_port()}", "-m", "lab.mesh_runs", json.dumps(cases)]
    variables = {**os.environ, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR"}
    ranks = subprocess.Popen(
        command, cwd=HOME, env=variables, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    )
    try:
        return ranks.wait(LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(ranks.pid, signal.SIGKILL)
        ranks.wait()
        return None


if __name__ == "__main__":
    alone(measure, __doc__)
