"""Choose the backend and the rendezvous port: facts in, choices with their reasons out. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

from ..core import text
from ..core.errors import DeployError, UsageError
from ..core.facts import EngineFacts, MachineFacts
from ..core.program import MAKE, option

PORTS_TO_TRY = 100
MOST_WORKERS = 255


@dataclass(frozen=True)
class BackendChoice:
    """The backend, and one line that says why: `local processes (no Docker engine answers)`."""

    name: str
    why: str


@dataclass(frozen=True)
class PortChoice:
    """The rendezvous port; `note` is set if it is not the wanted one."""

    port: int
    note: str = ""


def choose_backend(wanted: str, engine: EngineFacts, names: Collection[str]) -> BackendChoice:
    """Choose the backend for `auto`, or check the wanted one of `names` against the facts."""
    if wanted != "auto" and wanted not in names:
        raise UsageError(
            f"{option('BACKEND', wanted)}: no such backend",
            f"use one of {', '.join(option('BACKEND', name) for name in ('auto', *names))}",
        )
    if wanted not in ("auto", "docker"):
        return BackendChoice(wanted, f"local {wanted} (asked for)")
    if engine.answers:
        return BackendChoice("docker", f"Docker {engine.version.partition('+')[0]}".rstrip())
    reason = engine.reason or "no Docker engine answers"
    if wanted == "docker":
        raise DeployError(
            f"{option('BACKEND', 'docker')}: {reason}",
            f"start Docker, or train without it: `{MAKE} up {option('BACKEND', 'processes')}`",
        )
    return BackendChoice("processes", f"local processes ({reason})")


def on_gpus(gpus: int, nodes: int) -> BackendChoice:
    """Processes that use this machine's GPUs: one rank a GPU, shared out among several nodes; with too few, none."""
    if gpus < nodes:
        return BackendChoice("processes", f"local processes on the CPU ({nodes} nodes cannot share {gpus} GPUs)")
    return BackendChoice("processes", f"local processes, {gpus // nodes * nodes} of {gpus} GPUs")


def check_workers(given: str) -> int:
    """WORKERS as a number: the nodes beside the master."""
    if not given.isascii() or not given.isdigit() or int(given) > MOST_WORKERS:
        raise UsageError(
            f"{option('WORKERS', given)}: not a number from 0 to {MOST_WORKERS}",
            f"`{MAKE} up {option('WORKERS', 2)}` is the default",
        )
    return int(given)


def check_ranks(asked: Literal["auto"] | int | None, gpus: int, nodes: int) -> int | None:
    """The ranks that a node shall have; None: one a GPU, or one. Raises UsageError where two would share a GPU."""
    if asked is None or asked == "auto":
        return None
    if gpus and asked > gpus // nodes:
        raise UsageError(
            f"torchrun --nproc-per-node {asked}: this machine has {text.several(gpus, 'GPU')} for "
            f"{text.several(nodes, 'node')}",
            "leave it out: each GPU gets one rank",
        )
    return asked


def check_processes(machine: MachineFacts) -> None:
    """Raise DeployError if Python has no torch: every node would die at its first line."""
    if not machine.torch:
        raise DeployError(
            f"this machine: {machine.python} cannot import torch, which local processes need",
            "in Muster's checkout `make clean up` installs it; elsewhere: pip install '.[trainer]' there",
        )


def choose_port(wanted: int, busy: Collection[int]) -> PortChoice:
    """The wanted port, or the next one that nobody listens on."""
    for port in range(wanted, wanted + PORTS_TO_TRY):
        if port not in busy:
            return PortChoice(port, "" if port == wanted else f"port {wanted} is in use: the nodes meet on {port}")
    raise DeployError(
        f"this machine: ports {wanted} to {wanted + PORTS_TO_TRY - 1} are all in use",
        f"`{MAKE} down` stops the runs of this checkout",
    )
