"""Choose the backend, and the rendezvous port, and check the ranks against the GPUs: facts in, choices out. Pure."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..core import text
from ..core.errors import DeployError, UsageError
from ..core.facts import EngineFacts, MachineFacts
from ..core.suggest import near_match
from ..job import values
from ..job.load import read_text
from ..job.options import FLAG

PORTS_TO_TRY = 100


@dataclass(frozen=True)
class BackendChoice:
    """The backend, and one line with the reason: `local processes (no Docker engine answers)`."""

    name: str
    why: str


def choose_backend(
    wanted: str, engine: EngineFacts, names: Collection[str], gpus: int = 0, nodes: int = 1
) -> BackendChoice:
    """Choose the backend for `auto`, or check the wanted one of `names` against the facts.

    If the user names none, a script on a machine with `gpus` runs as processes: one rank per GPU. The nodes share the
    GPUs equally.
    """
    if gpus and wanted in ("", "processes"):
        where = f", {gpus // nodes * nodes} of" if gpus >= nodes else f" on the CPU: {nodes} nodes cannot share"
        return BackendChoice("processes", f"local processes{where} {gpus} GPUs")
    wanted = wanted or "auto"
    if wanted != "auto" and wanted not in names:
        raise UsageError(
            f"{FLAG.backend} {wanted}: no such backend",
            f"{FLAG.backend} {near_match(wanted, names) or 'auto'} (there are auto, {', '.join(names)})",
        )
    if wanted not in ("auto", "docker"):
        return BackendChoice(wanted, f"local {wanted}")
    if engine.answers:
        return BackendChoice("docker", f"Docker {engine.version.partition('+')[0]}".rstrip())
    reason = engine.reason or "no Docker engine answers"
    if wanted == "docker":
        raise DeployError(
            f"{FLAG.backend} docker: {reason}",
            f"start Docker, or train without it: {FLAG.backend} processes",
        )
    return BackendChoice("processes", f"local processes ({reason})")


def check_gpus(given: str, backend: str) -> values.Gpus:
    """Parse --gpus. Raises UsageError for any other text, and if the backend cannot provide GPUs."""
    asked: values.Gpus = read_text("gpus", given or "auto")
    if asked not in ("auto", 0) and backend == "docker":
        raise UsageError(
            f"{FLAG.gpus} {given}: the containers of this machine have torch for the CPU",
            f"leave out {FLAG.backend} docker",
        )
    return asked


def check_ranks(asked: int | None, gpus: int, nodes: int) -> None:
    """Raise UsageError if two ranks of a node would share a GPU."""
    if asked and gpus and asked > gpus // nodes:
        raise UsageError(
            f"{text.several(asked, 'rank')} a node: this machine has {text.several(gpus, 'GPU')} for "
            f"{text.several(nodes, 'node')}",
            f"leave out {FLAG.nproc}: each GPU gets one rank",
        )


def check_processes(machine: MachineFacts, script: bool = False) -> None:
    """Raise DeployError if Python has no torch: every node would fail at its first line."""
    if machine.torch:
        return
    install = f"{machine.python} -m pip install torch"
    raise DeployError(
        f"this machine: {machine.python} cannot import torch, which local processes need",
        f"activate the environment that has your torch, or install it: {install}"
        if script
        else "in Muster's checkout `make clean up` installs it; elsewhere: pip install '.[trainer]' in that folder",
    )


def choose_port(wanted: int, busy: Collection[int]) -> int:
    """The wanted port, or the next free one. Raises DeployError if PORTS_TO_TRY ports are all in use."""
    for port in range(wanted, wanted + PORTS_TO_TRY):
        if port not in busy:
            return port
    raise DeployError(
        f"this machine: ports {wanted} to {wanted + PORTS_TO_TRY - 1} are all in use",
        "`muster down` stops the runs of this folder",
    )
