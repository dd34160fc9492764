"""NVML answers while a GPU computes: use, memory, power, temperature, clocks; through nvidia-smi and nvidia-ml-py."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator

from ..bench import Bench, ask
from ..finding import Finding, judge, untried
from ..nodes import SCRIPTS, environment

TITLE, LIMIT_S = "what NVML tells of a GPU at work", 50
# The fields by nvidia-smi's names, with their units. All are numbers.
FIELDS = {
    "utilization.gpu": "% use",
    "memory.used": "MiB",
    "power.draw": "W",
    "temperature.gpu": "C",
    "clocks.sm": "MHz",
    "clocks.mem": "MHz memory",
}
_START_S = 30.0


def run(bench: Bench) -> Iterator[Finding]:
    """Ask while another process multiplies matrices."""
    if not bench.gpus:
        yield untried("GPU telemetry", "no GPU")
        return
    command = [sys.executable, str(SCRIPTS / "load.py")]
    with subprocess.Popen(command, env=environment(bench.one_gpu()), stdout=subprocess.PIPE) as load:
        try:
            assert load.stdout
            load.stdout.readline()  # it computes
            time.sleep(2.0)  # use is a mean over the last second or less
            yield _through_nvidia_smi(bench)
            yield _through_library(bench)
        finally:
            load.kill()


def _through_nvidia_smi(bench: Bench) -> Finding:
    index = f"--id={bench.one_gpu()['CUDA_VISIBLE_DEVICES']}"
    query = f"--query-gpu={','.join(FIELDS)}"
    answer = ask(["nvidia-smi", index, query, "--format=csv,noheader,nounits"])
    if answer is None:
        return untried("nvidia-smi", "it does not answer")
    return answered("nvidia-smi", values(answer))


def answered(what: str, cells: dict[str, float]) -> Finding:
    """Met if every field is a number and the GPU was busy."""
    text = ", ".join(f"{cells[field]:g} {unit}" for field, unit in FIELDS.items() if field in cells)
    missing = [field for field in FIELDS if field not in cells]
    measured = text + (f"; without {', '.join(missing)}" if missing else "")
    return judge(what, not missing and cells["utilization.gpu"] > 0, measured, "all six, use above 0 %", **cells)


def values(answer: str) -> dict[str, float]:
    """The numbers of nvidia-smi's first line by field, without `[N/A]` and the like."""
    numbers = {}
    for field, cell in zip(FIELDS, answer.splitlines()[0].split(",") if answer.strip() else (), strict=False):
        try:
            numbers[field] = float(cell)
        except ValueError:
            continue
    return numbers


_ASK_LIBRARY = """
import json, sys, pynvml as n
n.nvmlInit()
gpu_id = sys.argv[1]
gpu = n.nvmlDeviceGetHandleByIndex(int(gpu_id)) if gpu_id.isdigit() else n.nvmlDeviceGetHandleByUUID(gpu_id)
print(json.dumps({
    "utilization.gpu": n.nvmlDeviceGetUtilizationRates(gpu).gpu,
    "memory.used": n.nvmlDeviceGetMemoryInfo(gpu).used / 2**20,
    "power.draw": n.nvmlDeviceGetPowerUsage(gpu) / 1e3,
    "temperature.gpu": n.nvmlDeviceGetTemperature(gpu, n.NVML_TEMPERATURE_GPU),
    "clocks.sm": n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_SM),
    "clocks.mem": n.nvmlDeviceGetClockInfo(gpu, n.NVML_CLOCK_MEM),
}))
"""


def _through_library(bench: Bench) -> Finding:
    if not bench.has("pynvml"):
        return untried("nvidia-ml-py", "it is not installed")
    began = time.monotonic()
    answer = ask([sys.executable, "-c", _ASK_LIBRARY, bench.one_gpu()["CUDA_VISIBLE_DEVICES"]])
    if answer is None:
        return judge("nvidia-ml-py", False, "it raised, or did not answer", "all six")
    finding = answered("nvidia-ml-py", json.loads(answer.splitlines()[-1]))
    return judge(
        finding.what, finding.state == "met", f"{finding.measured} ({time.monotonic() - began:.1f} s)", finding.expected
    )
