"""The facts about this machine: GPUs, driver, torch, NCCL, MIG; and what is missing for a complete gpu-check."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from ..bench import Bench, output_of
from ..finding import Finding, judge, untried

TITLE, LIMIT_S = "what this machine is", 30
OLDEST_TORCH = (2, 8)
BEFORE = "gpus-before.json"


def run(bench: Bench) -> Iterator[Finding]:
    """The facts, and what cannot be checked because a package is missing."""
    machine, torch = bench.machine, bench.torch
    yield judge("Python", True, f"{machine['python']}, {machine['cores']} cores, {machine['memory_gb']} GB")
    cuda = f"CUDA {torch['cuda']}" if torch["cuda"] else f"ROCm {torch['hip']}" if torch["hip"] else "for CPUs"
    good = release(torch["version"]) >= OLDEST_TORCH
    yield judge("torch", good, f"{torch['version']}, {cuda}", ">= 2.8", version=torch["version"])
    yield from _gpus(bench)
    now = gpu_use()
    (bench.folder.parent / BEFORE).write_text(json.dumps(now))
    if bench.gpus and now["pids"] is not None:
        yield judge("processes on the GPUs", True, f"{', '.join(now['pids']) or 'none'}; {now['used_mib']} MiB in use")
    if not bench.has("tensorboardX"):
        yield untried(
            "TensorBoard events: a stand-in that writes none takes their place", "tensorboardX is not installed"
        )


def _gpus(bench: Bench) -> Iterator[Finding]:
    if not bench.gpus:
        yield untried("everything on GPUs", "torch sees no GPU: the same is tried on the CPU, with gloo")
        return
    for number, gpu in enumerate(bench.torch["gpus"]):
        text = f"{gpu['name']}, {gpu['memory_gb']} GB, capability {gpu['capability']}"
        yield judge(f"GPU {number}", True, text, **gpu)
    nccl = bench.torch["nccl"]
    yield judge("NCCL", bool(nccl), ".".join(map(str, nccl)) if nccl else "torch is built without", "there")
    fields = ["driver_version", "mig.mode.current", "compute_mode", "ecc.mode.current"]
    answer = output_of(["nvidia-smi", f"--query-gpu={','.join(fields)}", "--format=csv,noheader"])
    if not answer:
        yield untried("driver and MIG", "nvidia-smi does not answer")
        return
    first = dict(zip(fields, map(str.strip, answer.splitlines()[0].split(",")), strict=False))
    mode = first.get("compute_mode", "")
    text = f"{first.get('driver_version')}, MIG {first.get('mig.mode.current')}, compute mode {mode}"
    yield judge("driver", mode in ("Default", ""), text, "compute mode Default", **first)


def gpu_use() -> dict[str, Any]:
    """The process ids on the GPUs, and the MiB in use; None for each that nvidia-smi does not report."""
    apps = output_of(["nvidia-smi", "--query-compute-apps=pid", "--format=csv,noheader"])
    used = output_of(["nvidia-smi", "--query-gpu=memory.used", "--format=csv,noheader,nounits"])
    return {
        "pids": None if apps is None else sorted(set(re.findall(r"\d+", apps))),
        "used_mib": None if used is None else [int(number) for number in re.findall(r"\d+", used)],
    }


def release(version: str) -> tuple[int, int]:
    """The major and minor number of a torch version such as 2.13.0+cu130."""
    major, minor = version.split(".")[:2]
    return int(major), int(minor)
