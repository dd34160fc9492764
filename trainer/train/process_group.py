"""The process group: which backend, which device, how long to wait, and a clean end on every way out."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store
from torch.distributed.distributed_c10d import _set_pg_timeout
from torch.distributed.rendezvous import rendezvous

from muster.errors import Refused

from ..config import Config
from ..node.peer_errors import LostPeerError, lost_peer
from .environment import Ranks


@dataclass(frozen=True)
class Group:
    """What the rest of the trainer needs to know of the process group."""

    backend: str
    device: torch.device
    store: Store

    def patience(self, seconds: float) -> None:
        """How long a collective may take from now on before it is an error."""
        _set_pg_timeout(timedelta(seconds=seconds))


def choose_device(config: Config, ranks: Ranks) -> tuple[str, torch.device]:
    """The backend and device of this rank. Raises Refused for a backend that this torch or this machine lacks."""
    gpus = torch.cuda.device_count()
    backend = config.backend if config.backend != "auto" else ("nccl" if gpus else "gloo")
    if backend == "gloo":
        return backend, torch.device("cpu")
    if not dist.is_nccl_available():
        raise Refused(
            f"--backend nccl: torch {torch.__version__} is built without NCCL",
            "use --backend gloo, or a CUDA build of torch",
        )
    if not gpus:
        raise Refused(
            "--backend nccl: no GPU is visible here", "use --backend gloo; in containers, was `--gpus all` given?"
        )
    if ranks.local_rank >= gpus:
        raise Refused(
            f"local rank {ranks.local_rank} has no GPU of its own: {gpus} visible",
            f"start at most {gpus} ranks on this node (PET_NPROC_PER_NODE={gpus})",
        )
    return backend, torch.device("cuda", ranks.local_rank)


@contextmanager
def joined(config: Config, ranks: Ranks) -> Iterator[Group]:
    """Find the other ranks, and leave them properly whatever happens.

    The long `join_timeout` holds until the trainer shortens it after the first step, so that slow starters are awaited
    but a peer that dies later is noticed soon (the two-phase timeout of torchtitan). Raises TrainError when the
    others are not found in time.
    """
    backend, device = choose_device(config, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    patience = timedelta(seconds=config.join_timeout)
    try:
        store, _, _ = next(rendezvous("env://", timeout=patience))
        # CUDA runs keep gloo beside NCCL: verdicts and random states travel as CPU objects.
        dist.init_process_group(
            "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl",
            store=PrefixStore("group", store),
            rank=ranks.rank,
            world_size=ranks.world,
            timeout=patience,
            device_id=device if backend == "nccl" else None,
        )
    except (dist.DistError, RuntimeError) as fault:
        if not lost_peer(fault):
            raise
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise LostPeerError(f"the {ranks.world} ranks did not find each other through {where}: {fault}") from fault
    try:
        yield Group(backend, device, PrefixStore("muster", store))
    finally:
        with suppress(Exception):  # a group whose peer is gone may complain; it is closed all the same
            dist.destroy_process_group()
