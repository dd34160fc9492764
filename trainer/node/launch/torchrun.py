"""`python -m muster.trainer.node.launch.torchrun ARGS`: torchrun with forked ranks, and how long ranks have to end.

It has torchrun's options and variables, and ends as torchrun does: with its table of failures and its error files. What
is between them is ours, of public names of torch alone: torchrun starts each rank as a new Python, meets at every
address of a machine, and waits five minutes for nodes that begin again.
"""

from __future__ import annotations

import gc
import importlib

from .whole_torch import import_torch

if __name__ == "__main__":
    # An import of torch makes half a million objects and no garbage. To look for some takes a sixth of its time.
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

# What each rank of the trainer imports; DistributedDataParallel imports the second in its constructor.
_TRAINER = (f"{NAME}.train.run", "torch._dynamo")
# torch's defaults: how long ranks have to end, and which signals end torchrun.
_END_S, _SIGNALS = 30, "SIGTERM,SIGINT,SIGHUP,SIGQUIT"


def main() -> None:
    """Run what the command line says, as torchrun would."""
    sharing, pipes = share.claim(os.environ), rank_pipe.claim(os.environ)
    if os.environ.get("MUSTER_ALL_SIGNALLED") == "1":
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)
    for number in (signal.SIGUSR1, signal.SIGUSR2):  # for the ranks, where Slurm signals every process
        signal.signal(number, lambda *_: None)
    if torch_names.plain(os.environ):
        gc.enable()
        run.main()
        return
    with suppress(ImportError):  # each rank says so itself
        for name in _TRAINER if sys.argv[1:3] == ["-m", NAME] else ():
            importlib.import_module(name)
    first_rank = variables.first_rank()
    gc.freeze()  # a collection would write to every page that ranks share
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
    if asked.rdzv_backend == "static" and not asked.rdzv_endpoint and asked.master_port is None:  # a node alone
        asked.rdzv_backend, asked.rdzv_endpoint = "c10d", "127.0.0.1:0"
    if asked.rdzv_backend != "static":  # the agents know the place; a torchrun of the script's own shall not take it
        asked.node_rank = 0
        os.environ.pop("PET_NODE_RANK", None)
    config, program, words = run.config_from_args(asked)
    Launch(config, [str(program), *map(str, words)], Epochs(config, sharing), pipes).run()


class Launch:
    """This node from its first rank to the end."""

    def __init__(self, config: LaunchConfig, command: Sequence[str], meets: Epochs, pipes: Sequence[int]) -> None:
        self._config, self._command, self._meeting = config, command, meets
        self._ranks = Ranks(config, command, pipes)
        # torch has had options for these two since 2.10.
        self._end_s = float(os.environ.get("PET_SHUTDOWN_TIMEOUT") or _END_S)
        self._signals = os.environ.get("PET_SIGNALS_TO_HANDLE") or _SIGNALS

    def run(self) -> None:
        """Start the ranks, and again as often as asked. Raises ChildFailedError; SignalException if asked to end."""
        failures = dict[int, ProcessFailure]()
        os.environ["TORCHELASTIC_SIGNALS_TO_HANDLE"] = self._signals
        try:
            while generation := self._meeting.next(failed=bool(failures)):
                if (ended := self._live(generation)) == {}:
                    return
                failures = ended or {}
            raise ChildFailedError(self._name(), failures)
        except (SignalException, forks.Forked):  # another process may yet take this node's place
            raise
        except BaseException:
            self._meeting.close()
            raise

    def _live(self, generation: Generation) -> dict[int, ProcessFailure] | None:
        """A generation of ranks: those that failed, none if it is over; None where other nodes begin the next one."""
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
        """What torchrun calls its program in the table of failures."""
        program, *words = self._command
        return next((word for word in words if word[:1] != "-"), "") if program == sys.executable else program


def _raise(number: int, _: object) -> NoReturn:
    raise SignalException(f"Process {os.getpid()} got signal: {number}", sigval=signal.Signals(number))


if __name__ == "__main__":
    main()
