"""What a preflight assumes about the run: who starts it, where its nodes meet, which library sums gradients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MUSTER, TORCHRUN, SLURM, MPI = "muster", "torchrun", "slurm", "mpi"
STYLES = (MUSTER, TORCHRUN, SLURM, MPI)
# torchrun drops a node whose last heartbeat is older than interval x attempts by its own clock: 5 s x 3 by default.
# Measured: a node 14 s behind trains, 16 s behind not. Muster's rendezvous compares no clocks
# (trainer/node/membership/all_nodes.py), and the ranks that Slurm or MPI start keep no such watch on each other.
KEEP_ALIVE_S = 14.5

# What a host said, checked (probe_answers.py): a word, and what stands behind it.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class PreflightRequest:
    """One planned run.

    style: `muster` as muster deploy starts it (Muster sets addresses and interfaces), `torchrun` as a user types it,
    `slurm` or `mpi` where srun or mpirun start the ranks, which then meet at the first host (MASTER_ADDR).
    endpoint: the value of `--rdzv-endpoint`, an IP or a name; empty: an address of the first host that its peers reach.
    backend: `decided` replaces `auto`, by the hosts' facts.
    environment: variables of the run that the probe's own environment lacks.
    interfaces: by host, the interface of the network on which the hosts meet; empty: the one that the routes lead to.
    ports: on which each host must reach each other one, beside that of the rendezvous (--min-nodes).
    """

    style: Literal["muster", "torchrun", "slurm", "mpi"] = "muster"
    endpoint: str = ""
    port: int = 29500
    backend: Literal["auto", "gloo", "nccl"] = "gloo"
    rendezvous: Literal["c10d", "static"] = "c10d"
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    processes: int = 1
    where: str = "on the hosts themselves"
    interfaces: Mapping[str, str] = field(default_factory=dict, hash=False)
    ports: tuple[int, ...] = ()

    @property
    def by_c10d(self) -> bool:
        """Whether torchrun's own rendezvous brings the nodes together, with its names and clocks."""
        return self.style == TORCHRUN and self.rendezvous == "c10d"

    @property
    def by_nccl(self) -> bool:
        """Whether NCCL sums gradients, which has each rank reach each other one."""
        return self.backend == "nccl"

    def decided(self, facts: Mapping[str, Facts]) -> PreflightRequest:
        """The request with `auto` replaced: nccl if a host shows GPUs and no torch lacks CUDA, else gloo.

        A single host without GPUs does not change this: the others would use nccl, and that host is the fault.
        """
        if self.backend != "auto":
            return self
        gpu_facts = [{**(entry.get("gpus") or {}), **(entry.get("cuda") or {})} for entry in facts.values()]
        gpus = [bool(entry.get("rows") or entry.get("count")) for entry in gpu_facts]
        without = [entry.get("software", {}).get("cuda") == "None" for entry in facts.values()]
        return replace(self, backend="nccl" if any(gpus) and not any(without) else "gloo")
