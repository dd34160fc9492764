"""The process group: its backend, device, timeout and end. config.py and loop.py decide the timeout."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.rendezvous import rendezvous

from muster.errors import Refused

from ..config import Config
from ..node.ending.peer_errors import LostPeerError, error_reports_lost_peer
from .environment import Ranks


@dataclass(frozen=True)
class Group:
    """The joined process group as the rest of the trainer uses it."""

    backend: str
    device: torch.device
    store: Store

    def set_timeout(self, seconds: float) -> None:
        """From now on, a collective fails if it takes longer than `seconds`."""
        # An older torch may not have this method; the long timeout of the start then stays.
        if change := getattr(dist.group.WORLD, "set_timeout", None):
            change(timedelta(seconds=seconds))


def choose_device(config: Config, ranks: Ranks) -> tuple[str, torch.device]:
    """Choose the backend and device of this rank.

    Raises Refused if torch or the machine does not support the backend.
    """
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
            f"local rank {ranks.local_rank} has no GPU of its own: only {gpus} visible",
            f"start at most {gpus} ranks on this node (PET_NPROC_PER_NODE={gpus})",
        )
    return backend, torch.device("cuda", ranks.local_rank)


@contextmanager
def joined(config: Config, ranks: Ranks) -> Iterator[Group]:
    """Join the other ranks, and close the group at the end of the block, even after an error.

    `join_timeout` applies until the trainer shortens it after the first step: the ranks wait for a slow starter, but
    notice soon if a peer dies later (the two-phase timeout of torchtitan). Raises LostPeerError if the ranks do not
    find each other in time.
    """
    backend, device = choose_device(config, ranks)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    timeout = timedelta(seconds=config.join_timeout)
    try:
        store, _, _ = next(rendezvous("env://", timeout=timeout))
        # CUDA runs use gloo in addition to NCCL: verdicts and random states are CPU tensors.
        dist.init_process_group(
            "gloo" if backend == "gloo" else "cpu:gloo,cuda:nccl",
            store=PrefixStore("group", store),
            rank=ranks.rank,
            world_size=ranks.world,
            timeout=timeout,
            device_id=device if backend == "nccl" else None,
        )
    except (dist.DistError, RuntimeError) as fault:
        if not error_reports_lost_peer(fault):
            raise
        where = f"{os.environ.get('MASTER_ADDR')}:{os.environ.get('MASTER_PORT')}"
        raise LostPeerError(f"the {ranks.world} ranks did not find each other through {where}: {fault}") from fault
    try:
        yield Group(backend, device, PrefixStore("muster", store))
    finally:
        with suppress(Exception):  # a group with a lost peer may raise; torch closes it anyway
            dist.destroy_process_group()
