"""Xid messages of the GPUs' driver in a host's kernel log, if we may read it. Pure.

A log shows the past: a reset or reboot since then may have repaired the GPU. So only what the GPU's own counters still
show is a fault. If we may not read the log, there is no finding.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from ...causes.finding import FAULT, WARNING, Finding, find
from ..answers import Answers
from . import gpus

LINE = re.compile(r"NVRM: Xid \(PCI:([0-9a-fA-F]+:[0-9a-fA-F]+:[0-9a-fA-F]+)[.\d]*\): (\d+)")
LOADED = re.compile(r"NVRM: loading")
# By NVIDIA's catalogue: memory that is unreliable until a reset; other errors that need a reset, a reboot or a person.
MEMORY = {48: "double bit ECC error", 64: "row remapping failed", 95: "uncontained ECC error", 140: "ECC error"}
GRAVE = {62: "internal halt", 74: "NVLink error", 79: "fallen off the bus", 119: "GSP timeout", 120: "GSP error"}


def check(answers: Answers) -> Iterator[Finding]:
    """Findings about messages since the driver was loaded, of kinds that no application causes by itself."""
    for host in answers.hosts_with_facts:
        lines = recent(answers.control.get(host, {}).get("kernel") or ())
        errors = {bus(gpu["pci.bus_id"]): gpu["ecc.errors.uncorrected.volatile.total"] for gpu in _gpus(answers, host)}
        for where, number in dict.fromkeys((bus(row[1]), int(row[2])) for line in lines if (row := LINE.search(line))):
            line = next(line for line in reversed(lines) if LINE.search(line) and f": {number}" in line)
            if number in MEMORY and errors.get(where, "") not in ("", "0", "[N/A]"):
                yield _finding(host, where, number, MEMORY[number], line, FAULT)
            elif number in GRAVE:
                yield _finding(host, where, number, GRAVE[number], line, WARNING)


def recent(lines: Sequence[str]) -> list[str]:
    """The lines since the driver was last loaded."""
    starts = [place for place, line in enumerate(lines) if LOADED.search(line)]
    return list(lines[starts[-1] :] if starts else lines)


def bus(text: str) -> str:
    """A PCI address without the part that differs: nvidia-smi (`00000000:3B:00.0`), the log (`0000:3b:00`)."""
    domain, _, rest = text.lower().partition(":")
    return f"{domain[-4:]}:{rest.partition('.')[0]}"


def _gpus(answers: Answers, host: str) -> list[gpus.Gpu]:
    return gpus.read(answers.facts[host])


def _finding(host: str, where: str, number: int, words: str, line: str, level: str) -> Finding:
    return find(
        "gpu-xid",
        host,
        f"the driver has reported Xid {number} ({words}) for GPU {where}",
        level=level,
        evidence=(line.strip()[-160:],),
        symptom="a hang, or `CUDA error: uncorrectable ECC error encountered`",
    )
