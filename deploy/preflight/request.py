"""How training will start: by whom, where its nodes meet, which backend carries the gradients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

MUSTER, TORCHRUN = "muster", "torchrun"
# torchrun drops a node whose last sign of life is older than interval x attempts by its own clock: 5 s x 3 by default,
# 1 s x 5 with fab deploy. Measured: 14 s behind train and 16 s do not; with fab deploy's, 4 s train and 4.5 s do not.
KEEP_ALIVE_S = {TORCHRUN: 14.5, MUSTER: 4.2}


@dataclass(frozen=True)
class PreflightRequest:
    """One planned run.

    style: `torchrun` as a user types it, `muster` as fab deploy starts it (addresses and interfaces given by us).
    endpoint: what `--rdzv-endpoint` gets, an IP or a name; empty means the first host's address that its peers share.
    backend: `auto` is decided by what the hosts say (`decided`).
    environment: variables the run will have beside those of the probe's own environment.
    """

    style: Literal["muster", "torchrun"] = "muster"
    endpoint: str = ""
    port: int = 29500
    backend: Literal["auto", "gloo", "nccl"] = "gloo"
    rendezvous: Literal["c10d", "static"] = "c10d"
    environment: Mapping[str, str] = field(default_factory=dict, hash=False)
    processes: int = 1
    where: str = "on the hosts themselves"

    @property
    def keep_alive_s(self) -> float:
        """How far clocks may be apart before a node that lives is taken for dead."""
        return KEEP_ALIVE_S[self.style]

    def decided(self, facts: Mapping[str, Mapping[str, Any]]) -> PreflightRequest:
        """With a backend: nccl where a host shows GPUs and none has a torch that was built without CUDA, else gloo.

        One host without GPUs would not change the others' choice: it is the fault that keeps them from meeting.
        """
        if self.backend != "auto":
            return self
        gpu_facts = [{**(entry.get("gpus") or {}), **(entry.get("cuda") or {})} for entry in facts.values()]
        gpus = [bool(entry.get("rows") or entry.get("count")) for entry in gpu_facts]
        without = [entry.get("software", {}).get("cuda") == "None" for entry in facts.values()]
        return replace(self, backend="nccl" if any(gpus) and not any(without) else "gloo")

    def json(self) -> dict[str, Any]:
        """As `PreflightRequest(**value)` takes it back."""
        return asdict(self)
