"""What a preflight assumes about the run: what starts it, where its nodes meet, which library sums gradients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

MUSTER, TORCHRUN, SLURM, MPI = "muster", "torchrun", "slurm", "mpi"
STYLES = (MUSTER, TORCHRUN, SLURM, MPI)
# torchrun drops a node whose last heartbeat is older than interval x attempts by torchrun's own clock: by default
# 5 s x 3. Measured: a node whose clock is 14 s behind trains, one 16 s behind does not. Muster's rendezvous does not
# compare clocks (trainer/node/membership/all_nodes.py), and ranks that Slurm or MPI start have no such heartbeat.
KEEP_ALIVE_S = 14.5

# A host's answer after the checks of probe_answers.py: field name -> value.
Facts = Mapping[str, Any]


@dataclass(frozen=True)
class PreflightRequest:
    """One planned run.

    style: `muster` if `muster deploy` starts it (Muster sets addresses and interfaces); `torchrun` if a user types it;
    `slurm` or `mpi` if srun or mpirun starts the ranks, which then meet at the first host (MASTER_ADDR).
    endpoint: the value of `--rdzv-endpoint`, an IP or a name; empty: an address of the first host that its peers reach.
    backend: `decided` replaces `auto`, based on the hosts' facts.
    environment: variables of the run that the probe's own environment lacks.
    interfaces: by host, the interface of the network on which the hosts meet; empty: the one that the routes use.
    ports: the ports on which every host must reach every other one, in addition to the rendezvous port (--min-nodes).
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
        """Whether the nodes meet by torchrun's own rendezvous, which depends on host names and clocks."""
        return self.style == TORCHRUN and self.rendezvous == "c10d"

    @property
    def by_nccl(self) -> bool:
        """Whether NCCL sums the gradients, which needs every rank to reach every other one."""
        return self.backend == "nccl"

    def decided(self, facts: Mapping[str, Facts]) -> PreflightRequest:
        """Return the request with `auto` replaced: nccl if any host has GPUs and every torch has CUDA, else gloo.

        One host without GPUs does not change this: the other hosts would use nccl, and that host is the fault.
        """
        if self.backend != "auto":
            return self
        gpu_facts = [{**(entry.get("gpus") or {}), **(entry.get("cuda") or {})} for entry in facts.values()]
        gpus = [bool(entry.get("rows") or entry.get("count")) for entry in gpu_facts]
        without = [entry.get("software", {}).get("cuda") == "None" for entry in facts.values()]
        return replace(self, backend="nccl" if any(gpus) and not any(without) else "gloo")
