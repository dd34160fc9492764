"""`python -m muster.trainer.node.launch.torchrun ARGS`: torchrun, its pauses short, its ranks forked, at one address.

A node of torch's c10d rendezvous checks once a second whether the other nodes have joined, and each start and restart
of a run waits for that check: 1.1 s on three nodes that start together, 0.3 to 0.7 s with five checks a second. torch
2.13 has no setting for these pauses, nor for the way it starts ranks (forkserver.py forks them). So this module patches
private names of torch, which node/torch_names.py lists. If a torch has other names, that part of torchrun is unchanged.
"""

from __future__ import annotations

import gc

if __name__ == "__main__":
    # An import of torch makes half a million objects and no garbage. To look for some takes a sixth of its time.
    gc.disable()

import importlib
import os
import re
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import api
from torch.distributed.elastic.rendezvous import RendezvousStateError, dynamic_rendezvous

from muster.errors import TrainError

from ... import NAME
from ...verdict import failed, publish
from .. import torch_names
from ..agent import program
from ..ending import endings, ends
from ..files import share
from ..membership import group, meeting
from . import bare, epochs, forkserver, rank_pipe, rendezvous, style

# Between two checks of a node. They cost its machine nothing; the store that many nodes ask at once they would cost.
PAUSE_SECONDS, PAUSE_OF_MANY_SECONDS, MANY_NODES = 0.03, 0.1, 16
# What each rank of the trainer imports; DistributedDataParallel imports the second in its constructor.
_TRAINER = (f"{NAME}.train.run", "torch._dynamo")
_STRANGER = (
    "Muster executed none of that data. Anyone who can reach a run's ports can end the run: keep the ports inside a "
    "private network"
)
_HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler"


def main() -> None:
    """Run torchrun's own main function, with its arguments from the command line."""
    listener, sharing = meeting.claim(os.environ), share.claim(os.environ)
    if os.environ.get("MUSTER_ALL_SIGNALLED") == "1":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # for the ranks, where Slurm signals every process
        signal.signal(number, lambda *_: None)
    if torch_names.plain(os.environ):
        gc.enable()
        if listener:
            listener.close()
        run.main()
        return
    server = forkserver.start(_TRAINER if sys.argv[1:3] == ["-m", NAME] else (), listener)
    gc.enable()
    with suppress(ImportError):  # another torch may have this module elsewhere
        _start_ranks(importlib.import_module(_HANDLER).SubprocessHandler, server)
    _shorten_pauses(dynamic_rendezvous, pause(os.environ.get("PET_NNODES", "1")))
    ends.write_down(getattr(api, "SubprocessContext", None))
    try:
        if os.environ.get("PET_RDZV_BACKEND") == group.BACKEND:
            epochs.install(Path(os.environ["MUSTER_OUTCOME_DIR"]), os.environ["PET_LOCAL_ADDR"], sharing)
        elif os.environ.get(rendezvous.TORCHS_OWN) == "1":
            if listener:
                listener.close()
        else:
            rendezvous.install(listener, sharing)
        run.main()
    except (TrainError, RendezvousStateError) as fault:
        sys.exit(_report(fault))


def _report(fault: Exception) -> int:
    """Write a verdict for the agent and the control side, print the fault, and return its exit code."""
    known = fault if isinstance(fault, TrainError) else TrainError(str(fault), _STRANGER)
    node, folder = os.environ.get("MUSTER_NODE") or socket.gethostname(), os.environ.get("MUSTER_RUN_DIR")
    label = re.fullmatch(r"node-(\d+)", os.environ.get("PET_LOCAL_ADDR", ""))  # agent.py sets this label
    ranks = os.environ.get("PET_NPROC_PER_NODE", "1")
    rank = int(label[1]) * int(ranks if ranks.isdigit() else 1) if label else 0
    publish(failed(rank, node, 0, known), Path(folder) if folder else None, f"{node}-agent")
    print(known.report(), file=sys.stderr)
    return known.code


def _start_ranks(handler: Any, server: forkserver.Server | None) -> None:
    """Make torchrun ask the server for its ranks, and give each rank the pipe that the agent reads, if there is one.

    torch itself starts a rank whose output goes to a file (--redirects, --tee). A rank's code is the one that counts.
    """
    start: Callable[..., Any] | None = getattr(handler, "_popen", None)
    if not start:
        return

    def started(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
        env = {**env, **style.variables(env), rank_pipe.LIFE: rank_pipe.new_life(env)}
        args = tuple(program.words_of_start(args, env))
        return endings.judged(forked(self, args, env), env, stops=args[2:4] != ("-m", NAME))

    def forked(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
        if self._stdout is not None or self._stderr is not None:
            return start(self, args, env)
        pipe = rank_pipe.claim(env)
        env = bare.environment(env)
        if server and (rank := server.launch(args, env, str(pipe or ""))):
            return rank
        if pipe:
            self._stdout = self._stderr = pipe.open("wb", buffering=0)
        return start(self, args, env)

    handler._popen = started


def pause(nodes: str) -> float:
    """Seconds between two checks whether the other nodes have joined; `nodes` as torchrun's --nnodes has them."""
    most = nodes.rpartition(":")[2]
    return PAUSE_SECONDS if most.isdecimal() and int(most) < MANY_NODES else PAUSE_OF_MANY_SECONDS


def _shorten_pauses(module: Any, pause_s: float) -> None:
    delay: Callable[[Any], None] | None = getattr(module, "_delay", None)
    holder = getattr(module, "_BackendRendezvousStateHolder", None)
    if not delay or not holder:
        return
    init = holder.__init__

    def init_with_short_cache(self: Any, backend: Any, settings: Any, cache_duration: float = pause_s / 2) -> None:
        init(self, backend, settings, cache_duration)

    def delay_shorter(seconds: Any) -> None:
        # One second is the pause between two checks. A range spreads the first checks of the nodes, at the start and
        # again at the first restart: a store of a few hundred nodes needs no third of a second for that.
        delay(pause_s if seconds == 1 else (0, pause_s))

    holder.__init__, module._delay = init_with_short_cache, delay_shorter


if __name__ == "__main__":
    main()
