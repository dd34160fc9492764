"""`python -m muster.trainer.node.launch.torchrun ARGS`: torchrun with forked ranks, which must end within a set time.

It takes torchrun's options and variables, and ends as torchrun does: with its table of failures and its error files.
Everything between is Muster's own, and uses public names of torch alone. torch's torchrun starts each rank as a new
Python, listens at every address of a machine, and waits five minutes for nodes that begin again; this one does not.
"""

from __future__ import annotations

import gc
import importlib

from .import_torch import import_torch

if __name__ == "__main__":
    # Importing torch creates half a million objects and no garbage. A sixth of that time would be garbage collection.
    gc.disable()
    import_torch()

import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, NoReturn

from torch.distributed import run
from torch.distributed.elastic.multiprocessing import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError, ProcessFailure, record
from torch.distributed.launcher.api import LaunchConfig

from muster.errors import TrainError

from ... import NAME
from ...verdict import publish_before_training
from .. import torch_names, variables
from ..files import share
from . import forks, rank_pipe
from .epochs import Epochs, Generation
from .ranks import Ranks

# The modules that each rank of Muster's own trainer imports; DistributedDataParallel's constructor imports the second.
_TRAINER = (f"{NAME}.train.run", "torch._dynamo")
# torch's defaults: how many seconds ranks may take to end, and which signals end torchrun.
_END_S, _SIGNALS = 30, "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


def main() -> None:
    """Run the command line as torchrun would."""
    sharing, pipes = share.take_sharing(os.environ), rank_pipe.take_pipes(os.environ)
    if os.environ.get("MUSTER_ALL_SIGNALLED") == "1":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # Slurm sends them to every process; they are for the ranks
        signal.signal(number, lambda *_: None)
    if torch_names.keeps_torch_unchanged(os.environ):
        gc.enable()
        run.main()
        return
    with suppress(ImportError):  # each rank reports it itself
        for name in _TRAINER if sys.argv[1:3] == ["-m", NAME] else ():
            importlib.import_module(name)
    first_rank = variables.first_rank()
    gc.freeze()  # otherwise a collection would write to every memory page that forked ranks share
    gc.enable()
    try:
        _launch(sharing, pipes)
        return
    except TrainError as fault:
        publish_before_training(fault, first_rank, "agent")
        print(fault.report(), file=sys.stderr)
        sys.exit(fault.code)
    except forks.Forked as rank:
        words = rank.words
    forks.run(words)


@record
def _launch(sharing: share.Sharing | None, pipes: list[int]) -> None:
    asked = run.parse_args(sys.argv[1:])
    if asked.rdzv_backend == "static" and not asked.rdzv_endpoint and asked.master_port is None:  # a single node
        asked.rdzv_backend, asked.rdzv_endpoint = "c10d", "127.0.0.1:0"
    if asked.rdzv_backend != "static":  # the agents know the place; a torchrun that the script starts must not see it
        asked.node_rank = 0
        os.environ.pop("PET_NODE_RANK", None)
    config, program, words = run.config_from_args(asked)
    Launch(config, [str(program), *map(str, words)], Epochs(config, sharing), pipes).run()


class Launch:
    """This node's ranks, one generation after the other, to the end."""

    def __init__(self, config: LaunchConfig, command: Sequence[str], meets: Epochs, pipes: Sequence[int]) -> None:
        self._config, self._command, self._meeting = config, command, meets
        self._ranks = Ranks(config, command, pipes)
        # torch has had options for these two since 2.10.
        self._end_s = float(os.environ.get("PET_SHUTDOWN_TIMEOUT") or _END_S)
        self._signals = os.environ.get("PET_SIGNALS_TO_HANDLE") or _SIGNALS

    def run(self) -> None:
        """Start the ranks, and restart them as often as allowed.

        Raises ChildFailedError if they have failed for good, and SignalException if this process was asked to end.
        """
        failures = dict[int, ProcessFailure]()
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = self._signals
        try:
            while generation := self._meeting.next(failed=bool(failures)):
                if (ended := self._live(generation)) == {}:
                    return
                failures = ended or {}
            raise ChildFailedError(self._name(), failures)
        except (SignalException, forks.Forked):  # do not close: another process may still take this node's place
            raise
        except BaseException:
            self._meeting.close()
            raise

    def _live(self, generation: Generation) -> dict[int, ProcessFailure] | None:
        """Run one generation; returns the failed ranks (empty: all is done), or None if other nodes begin the next."""
        self._hear(_raise)
        try:
            self._ranks.start(generation)
            failures = self._follow()
            killed = failures is None and self._meeting.loses_nodes
            all_failures = self._ranks.end(signal.SIGKILL if killed else signal.SIGTERM, _END_S)
            return all_failures if failures else failures
        except forks.Forked:
            raise
        except BaseException as fault:
            self._hear(signal.SIG_IGN)
            self._ranks.end(getattr(fault, "sigval", signal.SIGTERM), self._end_s)
            raise

    def _follow(self) -> dict[int, ProcessFailure] | None:
        while True:
            time.sleep(self._config.monitor_interval)
            if failures := self._ranks.look():
                return failures
            if not self._ranks.running and self._meeting.is_over():
                return {}
            if self._meeting.waiting():
                return None

    def _hear(self, handler: Any) -> None:
        for name in self._signals.split(","):
            number = getattr(signal, name.strip(), None)
            if number and signal.getsignal(number) is not signal.SIG_IGN:
                signal.signal(number, handler)

    def _name(self) -> str:
        """The program's name in torchrun's table of failures."""
        program, *words = self._command
        return next((word for word in words if word[:1] != "-"), "") if program == sys.executable else program


def _raise(number: int, _: object) -> NoReturn:
    raise SignalException(f"Process {os.getpid()} got signal: {number}", sigval=signal.Signals(number))


if __name__ == "__main__":
    main()
