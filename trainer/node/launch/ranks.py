"""Starts, watches and ends the ranks of this node, one generation after another; torchrun.py decides when.

A rank is a fork if that behaves exactly like a new process, and otherwise it is a new process. The agent reads in the
journal which ranks began and ended (ending/rank_lives.py), and from each rank's pipe what it prints.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.utils.api import macros
from torch.distributed.elastic.utils.logging import get_logger
from torch.distributed.launcher.api import LaunchConfig

from ... import NAME
from .. import processes
from ..agent import command
from ..ending import judge_below, rank_lives
from ..parent_death import die_with_parent
from . import bare, forks, rank_pipe, style
from .epochs import Generation

_POLL_S, _KILLED_S = 0.02, 30.0
_FAILED = "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s"
_logger = get_logger(__name__)


class Ranks:
    """The ranks of one node. `command`: as torchrun would start it. `pipes`: for their output, by local rank."""

    def __init__(self, config: LaunchConfig, command: Sequence[str], pipes: Sequence[int]) -> None:
        self._config, self._command, self._pipes = config, command, pipes
        self._processes = dict[int, judge_below.JudgedRank]()
        self._failures, self._error_files = dict[int, ProcessFailure](), dict[int, str]()
        # The local ranks that have not ended.
        self.running = set[int]()

    def start(self, generation: Generation) -> None:
        """Start all ranks, after killing what the last generation left behind, which may hold a port or a GPU."""
        again = bool(self._processes)
        self.end_left_behind()
        self._processes, self._failures, self.running = {}, {}, set()
        self._generation = generation
        environments = {local: self._environment(local, generation) for local in range(self._config.nproc_per_node)}
        assert self._config.logs_specs
        self._error_files = self._config.logs_specs.reify(environments).error_files
        for local, own in environments.items():
            given = {**os.environ, **own}
            given |= {**style.variables(given), rank_lives.LIFE: rank_lives.new_life(given)}
            words = command.words_of_start(macros.substitute(list(self._command), str(local)), given, again)
            pipe = rank_pipe.pipe_of_rank(self._pipes, local)
            process = self._started(words, bare.without_torchrun_variables(given), pipe)
            is_own = words[2:4] == ["-m", NAME]
            self._processes[local] = judge_below.JudgedRank(process, given, stops=not is_own)
            self.running.add(local)
            rank_lives.note_begin(local, process.pid, given)

    def end_left_behind(self) -> None:
        """Kill the processes that ended ranks have left behind in their process groups.

        The kernel does not reuse a group's number while the group has a process. So if a process has that number again,
        the group was empty, and must not be killed.
        """
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                if not processes.exists(process.pid):
                    os.killpg(process.pid, signal.SIGKILL)

    def _started(self, words: Sequence[str], given: Mapping[str, str], pipe: int | None) -> Any:
        """Start a rank; returns a Popen, or an object with the same interface."""
        if forks.can_start(words, given):
            return forks.start(words, given, pipe, self._pipes)
        dies = partial(die_with_parent, signal.SIGKILL, os.getpid())
        return subprocess.Popen(words, env=given, stdout=pipe, stderr=pipe, start_new_session=True, preexec_fn=dies)

    def look(self) -> dict[int, ProcessFailure]:
        """Note which ranks have ended since the last call; returns the failures by rank."""
        now = time.time()
        for local in self._ended():
            process = self._processes[local]
            rank_lives.note_end(now, local, process.pid, process.noted, process.crash)
        if self._failures:
            first = min(self._failures.values(), key=lambda each: each.timestamp)
            _logger.error(_FAILED, first.exitcode, first.local_rank, first.pid, self._command[0])
        return self._failures

    def end(self, number: int, seconds: float) -> dict[int, ProcessFailure]:
        """End the running ranks with this signal, and with SIGKILL after `seconds`; returns all failures by rank."""
        for sent, patience in ((number, seconds), (signal.SIGKILL, _KILLED_S)):
            for local in self.running:
                with suppress(ProcessLookupError):
                    os.killpg(self._processes[local].pid, sent)
            end = time.monotonic() + patience
            while self.running and time.monotonic() < end:
                self._ended()
                time.sleep(_POLL_S if self.running else 0)
        return self._failures

    def _ended(self) -> list[int]:
        """The local ranks that have ended since the last call; those that failed are added to the failures."""
        ended = [local for local in sorted(self.running) if self._processes[local].poll() is not None]
        self.running.difference_update(ended)
        for local in ended:
            process = self._processes[local]
            if code := process.returncode:
                failure = ProcessFailure(local, process.pid, code, self._error_files[local])
                self._failures[self._generation.first_rank + local] = failure
        return ended

    def _environment(self, local: int, generation: Generation) -> dict[str, str]:
        """The variables that torchrun gives a rank in addition to its own environment."""
        config = self._config
        rank, world = str(generation.first_rank + local), str(generation.world)
        return {
            "LOCAL_RANK": str(local),
            "RANK": rank,
            "ROLE_RANK": rank,
            "ROLE_NAME": config.role,
            "GROUP_RANK": str(generation.place),
            "LOCAL_WORLD_SIZE": str(config.nproc_per_node),
            "WORLD_SIZE": world,
            "ROLE_WORLD_SIZE": world,
            "GROUP_WORLD_SIZE": str(generation.nodes),
            "MASTER_ADDR": generation.address,
            "MASTER_PORT": str(generation.port),
            "TORCHELASTIC_RESTART_COUNT": str(generation.attempt),
            "TORCHELASTIC_MAX_RESTARTS": str(config.max_restarts),
            "TORCHELASTIC_RUN_ID": config.run_id,
            "TORCHELASTIC_USE_AGENT_STORE": "True",  # every rank is a client of the store, and no rank listens
            "TORCH_NCCL_ASYNC_ERROR_HANDLING": os.environ.get("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"),
        }
