"""Ranks of a group as forks of one process that has imported torch: for figures that need many short runs."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_PRELOAD = ["torch", "torch._dynamo", "accelerate", "torchdata.stateful_dataloader", "muster.trainer.train.run"]
_LIMIT_S = 180.0


def run_ranks(
    world: int,
    log: Path,
    rank_main: Callable[..., None],
    *arguments: Any,
    kill: Callable[[], bool] | None = None,
    limit_s: float = _LIMIT_S,
) -> None:
    """Call `rank_main(*arguments)` in `world` new processes with torchrun's variables set, their output sent to `log`.

    All are killed as soon as `kill()` is true. Raises RuntimeError when one does not end well within `limit_s`, or ends
    before it is killed; none is left running either way.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(_PRELOAD)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ranks = [
        context.Process(target=_rank, args=(rank, world, port, log, rank_main, arguments), daemon=True)
        for rank in range(world)
    ]
    try:
        for process in ranks:
            process.start()
        end = time.monotonic() + limit_s
        while time.monotonic() < end and any(process.is_alive() for process in ranks):
            if kill and kill():
                return
            time.sleep(0.005 if kill else 0.1)
    finally:
        for process in ranks:
            if process.is_alive():
                process.kill()
                process.join()
    if any(process.exitcode for process in ranks):
        codes = [process.exitcode for process in ranks]
        raise RuntimeError(f"{rank_main.__name__} {arguments}: exit codes {codes}\n{log.read_text()[-2000:]}")


def _rank(
    rank: int, world: int, port: int, log: Path, rank_main: Callable[..., None], arguments: tuple[Any, ...]
) -> None:
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(file, 1)
    os.dup2(file, 2)
    os.environ |= {
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(world),
        "LOCAL_WORLD_SIZE": str(world),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
        "OMP_NUM_THREADS": "1",
    }
    rank_main(*arguments)
    os._exit(0)  # gloo's threads at times crash or hang an interpreter on its way out
