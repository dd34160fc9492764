"""Compare what a run's telemetry reads about a busy GPU with what nvidia-smi reports at the same time."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from ..bench import Bench, output_of
from ..finding import Finding, judge, untried
from ..nodes import SCRIPTS, environment

TITLE, LIMIT_S = "what telemetry tells of a GPU at work", 50
# nvidia-smi's names, and Muster's names with their units. All values are numbers.
FIELDS = {
    "utilization.gpu": ("use_percent", "% use"),
    "memory.used": ("memory_bytes", "bytes"),
    "power.draw": ("power_w", "W"),
    "temperature.gpu": ("celsius", "C"),
    "clocks.sm": ("sm_mhz", "MHz"),
    "clocks.mem": ("memory_mhz", "MHz memory"),
}
_READ = "import json, os; from trainer.node.beside.telemetry import Gpus; print(json.dumps(Gpus(os.environ).read()))"


def run(bench: Bench) -> Iterator[Finding]:
    """Read both while another process multiplies matrices."""
    if not bench.gpus:
        yield untried("GPU telemetry", "no GPU")
        return
    gpu, of_gpu = bench.one_gpu()["CUDA_VISIBLE_DEVICES"], environment(bench.one_gpu())
    command = [sys.executable, str(SCRIPTS / "load.py")]
    with subprocess.Popen(command, env=of_gpu, stdout=subprocess.PIPE) as load:
        try:
            assert load.stdout
            load.stdout.readline()  # it has begun to compute
            time.sleep(2.0)  # use is a mean over the last second or less
            said = output_of(
                ["nvidia-smi", f"--id={gpu}", f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
            )
            read = output_of([sys.executable, "-c", _READ], of_gpu)
        finally:
            load.kill()
    yield compare(json.loads(read or "{}"), said or "")


def compare(read: dict[str, Any], said: str) -> Finding:
    """Met if Muster has every number that nvidia-smi reports, and the GPU was busy.

    The driver reports fewer numbers for some GPUs.
    """
    gpu: dict[str, Any] = (read.get("gpus") or [{}])[0]
    cells = [cell.strip() for cell in said.partition("\n")[0].split(",")]
    known = [own for (own, _), cell in zip(FIELDS.values(), cells, strict=False) if cell[:1].isdigit()]
    missing = [own for own in known if own not in gpu]
    text = [f"{gpu[own]:g} {unit}" for own, unit in FIELDS.values() if own in gpu]
    measured = ", ".join(text or [read.get("gpu_unseen", "no GPU")]) + "; without ".join(["", *missing])
    good = bool(gpu) and not missing and gpu.get("use_percent", 1) > 0
    return judge("telemetry of a GPU", good, measured, "what nvidia-smi has, use above 0 %", nvidia_smi=cells, **gpu)
