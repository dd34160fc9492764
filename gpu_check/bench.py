"""What every check gets: the machine's facts, a folder, and runs on this machine's GPUs, or on its CPU."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from .network import Place
from .nodes import RECIPES, SCRIPTS, Run

# NCCL can let ranks share a GPU from this version on.
_SHARES_GPU = (2, 30)
# nvidia-smi still answers, but exits with 14, if the infoROM of a working GPU is corrupt.
_ANSWERED_CODES = (0, 14)
MULTI_RANK = "NCCL_MULTI_RANK_GPU_ENABLE"
# Ranks that share a GPU as different 'hosts' must use sockets, like real hosts without InfiniBand.
_SOCKETS = {"NCCL_P2P_DISABLE": "1", "NCCL_SHM_DISABLE": "1", "NCCL_IB_DISABLE": "1", "NCCL_NET": "Socket"}


@dataclass(frozen=True)
class Bench:
    """The machine's facts from `machine_facts`, and the check's own folder, inside the folder of all checks."""

    machine: dict[str, Any]
    folder: Path
    say: Callable[[str], None]

    @property
    def torch(self) -> dict[str, Any]:
        """The facts about torch."""
        return dict(self.machine["torch"])

    @property
    def gpus(self) -> int:
        """How many GPUs there are."""
        return len(self.torch["gpus"])

    @property
    def backend(self) -> str:
        """nccl on GPUs, gloo without GPUs."""
        return "nccl" if self.gpus else "gloo"

    @property
    def shares_gpu(self) -> bool:
        """Whether NCCL lets ranks of one host share a GPU."""
        return tuple(self.torch.get("nccl") or ()) >= _SHARES_GPU

    def has(self, package: str) -> bool:
        """Whether a package can be imported."""
        return bool(self.machine["packages"].get(package))

    def one_gpu(self) -> dict[str, str]:
        """The variables with which a node sees only the first GPU."""
        if not self.gpus:
            return {}
        visible = os.environ.get("CUDA_VISIBLE_DEVICES", "").split(",")[0]
        # Numbered by PCI bus, as nvidia-smi does. Otherwise CUDA numbers the fastest GPU first.
        return {"CUDA_VISIBLE_DEVICES": visible or "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}

    def separate_host_variables(self, host: str) -> dict[str, str]:
        """The variables that make NCCL treat a process on the first GPU as one on a host with this name."""
        return {**self.one_gpu(), **_SOCKETS, "NCCL_HOSTID": host} if self.gpus else {}

    def hosts(
        self,
        name: str,
        arguments: Sequence[str],
        places: Sequence[Place],
        apart: bool = True,
        variables: Mapping[str, str] | None = None,
        **more: Any,
    ) -> Run:
        """A run of several 'hosts' that share the first GPU; with `apart`, NCCL treats them as different hosts."""
        made = {**self.one_gpu(), **(variables or {})}
        if self.gpus and apart:
            made |= _SOCKETS

        def own(number: int) -> dict[str, str]:
            if not self.gpus:
                return {}
            log = str(self.folder / f"nccl-{name}-{number}.log")
            debug = {"NCCL_DEBUG": "INFO", "NCCL_DEBUG_SUBSYS": "INIT,NET,ENV", "NCCL_DEBUG_FILE": log}
            return {**debug, **({"NCCL_HOSTID": f"{name}-{number}"} if apart else {})}

        return Run(self.folder / name, arguments, places, variables=made, own=own, **more)

    def node(self, name: str, arguments: Sequence[str], variables: Mapping[str, str] | None = None, **more: Any) -> Run:
        """A run of one node with one rank, on the first GPU."""
        return Run(self.folder / name, arguments, variables={**self.one_gpu(), **(variables or {})}, **more)

    def training(self, recipe: str, steps: int, *more: str) -> list[str]:
        """The agent's arguments for the trainer with one of gpu_check's recipes."""
        chosen = str(RECIPES / f"{recipe}.py")
        return ["--recipe", chosen, "--steps", str(steps), "--eval-every", "0", "--log-every", "5", *more]

    def script(self, name: str, *arguments: str) -> list[str]:
        """The agent's arguments for one of gpu_check's scripts."""
        return ["--script", str(SCRIPTS / f"{name}.py"), *arguments]


def output_of(command: Sequence[str], variables: Mapping[str, str] | None = None, seconds: float = 20.0) -> str | None:
    """The output of a command; None if the command is missing, fails or takes too long.

    After a timeout this does not wait for the process: no signal ends a process that is in a hanging driver.
    """
    with suppress(OSError):
        asked = subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        with suppress(subprocess.TimeoutExpired):
            output, _ = asked.communicate(timeout=seconds)
            return output if asked.returncode in _ANSWERED_CODES else None
        asked.kill()
    return None
