"""`python -m trainer.elastic.torchrun ARGS`: torchrun whose nodes meet sooner and whose ranks start at once.

A node of torch's c10d rendezvous looks once a second whether the others are there, and every start and restart of a
run waits for that look: 1.1 s on three nodes that start at once, 0.3 to 0.7 s with five looks. The pauses are no
settings of torch's (seen to 2.13: two names in dynamic_rendezvous.py), nor is how ranks are started (here they are
forked from a process that has torch, forkserver.py); where torch has other names, torchrun is as it is.
"""

from __future__ import annotations

import importlib
import os
import re
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

from .. import NAME
from ..node import ends, meeting, rank_pipe, torch_names
from ..verdict import failed, publish
from . import forkserver, rendezvous

PAUSE_SECONDS = 0.2
# What each rank of the trainer imports; DistributedDataParallel asks for the second when it is made.
_TRAINER = (f"{NAME}.train.run", "torch._dynamo")
_STRANGER = "nothing of it was run; who reaches a run's ports can end it: keep them inside a private network"
_HANDLER = "torch.distributed.elastic.multiprocessing.subprocess_handler"


def main() -> None:
    """As torchrun's own, with its arguments from the command line."""
    held = meeting.claim(os.environ)
    if torch_names.plain(os.environ):
        if held:
            held.close()
        run.main()
        return
    server = forkserver.start(_TRAINER if sys.argv[1:3] == ["-m", NAME] else (), held)
    with suppress(ImportError):  # an older torch may have it elsewhere
        _start_ranks(importlib.import_module(_HANDLER).SubprocessHandler, server)
    _look_more_often(dynamic_rendezvous)
    ends.write_down(getattr(api, "SubprocessContext", None))
    try:
        if os.environ.get(rendezvous.TORCHS_OWN) == "1":
            if held:
                held.close()
        else:
            rendezvous.install(held)
        run.main()
    except (TrainError, RendezvousStateError) as fault:
        sys.exit(_told(fault))


def _told(fault: Exception) -> int:
    """Leave a verdict where the agent and the control side look for one; returns its exit code."""
    known = fault if isinstance(fault, TrainError) else TrainError(str(fault), _STRANGER)
    node, folder = os.environ.get("MUSTER_NODE") or socket.gethostname(), os.environ.get("MUSTER_RUN_DIR")
    place = re.fullmatch(r"node-(\d+)", os.environ.get("PET_LOCAL_ADDR", ""))  # the agent's label (agent.py)
    ranks = os.environ.get("PET_NPROC_PER_NODE", "1")
    rank = int(place[1]) * int(ranks if ranks.isdigit() else 1) if place else 0
    publish(failed(rank, node, 0, known), Path(folder) if folder else None, f"{node}-agent")
    print(known.report(), file=sys.stderr)
    return known.code


def _start_ranks(handler: Any, server: forkserver.Server | None) -> None:
    """Have torchrun ask the server for its ranks, and give each the pipe that the agent reads, where there is one.

    Where torchrun sends their output into files (--redirects, --tee), ranks start as ever.
    """
    start: Callable[..., Any] | None = getattr(handler, "_popen", None)
    if not start:
        return

    def forked(self: Any, args: tuple[str, ...], env: dict[str, str]) -> Any:
        if self._stdout is not None or self._stderr is not None:
            return start(self, args, env)
        pipe = rank_pipe.claim(env)
        if server and (rank := server.launch(args, env, str(pipe or ""))):
            return rank
        if pipe:
            self._stdout = self._stderr = pipe.open("wb", buffering=0)
        return start(self, args, env)

    handler._popen = forked


def _look_more_often(torchs: Any) -> None:
    delay: Callable[[Any], None] | None = getattr(torchs, "_delay", None)
    holder = getattr(torchs, "_BackendRendezvousStateHolder", None)
    if not delay or not holder:
        return
    init = holder.__init__

    def never_older(self: Any, backend: Any, settings: Any, cache_duration: float = PAUSE_SECONDS / 2) -> None:
        init(self, backend, settings, cache_duration)

    def shorter(seconds: Any) -> None:
        # One second is the pause between two looks; a range is what spreads the first ones.
        delay(PAUSE_SECONDS if seconds == 1 else seconds)

    holder.__init__, torchs._delay = never_older, shorter


if __name__ == "__main__":
    main()
