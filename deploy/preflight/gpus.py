"""GPUs as nvidia-smi tells of them: there, healthy, free, alike. Pure."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator

from deploy.preflight.answers import Answers
from deploy.preflight.verdict import WARNING, Finding, listed

BUSY_MIB = 500
DRIVER = re.compile(r"NVML|driver|Driver/library")


def check(answers: Answers) -> Iterator[Finding]:
    """Each host's GPUs, then all against each other."""
    said = {host: answers.facts[host].get("gpus") or {} for host in answers.told}
    rows = {host: value.get("rows", []) for host, value in said.items()}
    for host, value in said.items():
        error = value.get("error", "")
        if error and DRIVER.search(error) and "not found" not in error:
            fix = f"on {host}: reboot, or reload the driver (sudo rmmod nvidia_uvm nvidia && sudo modprobe nvidia)"
            yield Finding(
                "gpu-driver", "gpus", (host,), f"{host}: {error.splitlines()[0]}", (), "CUDA is not available", fix
            )
        elif value.get("devices"):
            text, fix = (
                f"{host}: has GPUs, but no nvidia-smi where training runs",
                "install nvidia-container-toolkit, docker run --gpus all",
            )
            yield Finding("gpu-runtime", "gpus", (host,), text, (), "torch.cuda.is_available() is False", fix)
        yield from _rows(host, rows[host])
    yield from _alike(rows, answers.want.backend == "nccl")


def _rows(host: str, rows: list[list[str]]) -> Iterator[Finding]:
    for row in rows:
        index, _, _, used, *_ = [*row, "", "", "", ""]
        ecc = row[6] if len(row) > 6 else ""
        if used.isdigit() and int(used) > BUSY_MIB:
            text, fix = f"{host}: GPU {index} has {used} MiB in use", f"fab gpus --hosts {host} shows by whom"
            yield Finding("gpu-busy", "gpus", (host,), text, (), "CUDA out of memory at the start", fix, WARNING)
        if ecc.isdigit() and int(ecc):
            text, fix = (
                f"{host}: GPU {index} has {ecc} uncorrected memory errors",
                f"on {host}: sudo nvidia-smi -r -i {index}, or replace it",
            )
            yield Finding("gpu-faulty", "gpus", (host,), text, (), "`uncorrectable ECC error`", fix)


def _alike(rows: dict[str, list[list[str]]], nccl: bool) -> Iterator[Finding]:
    kinds = {host: ", ".join(sorted(row[1] for row in found if len(row) > 1)) for host, found in rows.items()}
    if len(set(kinds.values())) < 2:
        return
    common = Counter(kinds.values()).most_common(1)[0][0]
    odd = tuple(host for host, kind in kinds.items() if kind != common)
    none = tuple(host for host, kind in kinds.items() if not kind)
    shown = tuple(f"{host}: {len(rows[host])} GPUs ({kind or 'none'})" for host, kind in kinds.items())
    if none and nccl:
        text, fix = (
            f"{listed(none)} shows no GPU, the others do",
            f"on {listed(none)}: nvidia-smi; lspci | grep -i nvidia",
        )
        yield Finding("gpu-missing", "gpus", none, text, shown, "`no CUDA-capable device is detected`", fix)
    else:
        text = f"GPUs differ: {listed(shown)}"
        yield Finding(
            "gpus-differ",
            "gpus",
            odd,
            text,
            shown,
            "the slowest sets the pace",
            "name GPUs per host in cluster.toml",
            WARNING,
        )
