"""The ranks of this node in one generation: started as torchrun starts them, looked at, and ended (torchrun.py: when).

Each is a fork where that is what a new process would be, and a new process else. The agent reads who began
and who ended (ending/rank_lives.py), and what they print, from the pipe of each rank.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from typing import Any

from torch.distributed.elastic.multiprocessing.errors import ProcessFailure
from torch.distributed.elastic.utils.api import macros
from torch.distributed.elastic.utils.logging import get_logger
from torch.distributed.launcher.api import LaunchConfig

from ... import NAME
from ..agent import command
from ..ending import judge_below, rank_lives
from ..parent_death import die_with_parent
from . import bare, forks, style
from .epochs import Generation

_POLL_S, _KILLED_S = 0.02, 30.0
_logger = get_logger(__name__)


class Ranks:
    """`command`: as torchrun would start it. `again`: this node has had ranks before. `pipes`: for what they print."""

    def __init__(
        self, config: LaunchConfig, command: Sequence[str], generation: Generation, again: bool, pipes: Sequence[int]
    ) -> None:
        self._config, self._command, self._generation, self._again = config, command, generation, again
        self._pipes = pipes
        self._processes, self._running = dict[int, judge_below.Judged](), set[int]()
        self._failures = dict[int, ProcessFailure]()
        self._error_files = dict[int, str]()

    def start(self) -> None:
        """Start them all."""
        environments = {local: self._environment(local) for local in range(self._config.nproc_per_node)}
        assert self._config.logs_specs
        files = self._config.logs_specs.reify(environments)  # this also names each rank's error file
        self._error_files = files.error_files
        for local, own in environments.items():
            given = {**os.environ, **own}
            given |= {**style.variables(given), rank_lives.LIFE: rank_lives.new_life(local, given)}
            words = command.words_of_start(macros.substitute(list(self._command), str(local)), given, self._again)
            pipe = self._pipes[local] if local < len(self._pipes) else None
            process = self._started(words, bare.environment(given), [files.stdouts[local], files.stderrs[local]], pipe)
            is_own = words[2:4] == ["-m", NAME]
            self._processes[local] = judge_below.Judged(process, given, stops=not is_own)
            self._running.add(local)
            rank_lives.note_begin(local, process.pid, given)

    def _started(self, words: Sequence[str], given: Mapping[str, str], files: Sequence[str], pipe: int | None) -> Any:
        """A rank: a Popen, or what stands for one. `files`: for its output and errors, where torchrun was asked so."""
        if not any(files) and forks.can_start(words, given):
            return forks.start(words, given, pipe, self._pipes)
        with ExitStack() as opened:
            out, err = (opened.enter_context(open(file, "wb")) if file else pipe for file in files)
            dies = partial(die_with_parent, signal.SIGKILL, os.getpid())
            return subprocess.Popen(words, env=given, stdout=out, stderr=err, start_new_session=True, preexec_fn=dies)

    def look(self) -> dict[int, ProcessFailure]:
        """Those that have failed, by their rank."""
        now = time.time()
        for local in sorted(self._running):
            process = self._processes[local]
            if (code := process.poll()) is not None:
                rank_lives.note_end(now, local, process.pid, process.noted, process.crash)
                self._ended(local, code)
        if self._failures:
            first = min(self._failures.values(), key=lambda each: each.timestamp)
            _logger.error(
                "failed (exitcode: %s) local_rank: %s (pid: %s) of binary: %s",
                first.exitcode,
                first.local_rank,
                first.pid,
                self._command[0],
            )
        return dict(self._failures)

    @property
    def have_ended(self) -> bool:
        """Whether none runs any more."""
        return not self._running

    def end(self, number: int, seconds: float) -> dict[int, ProcessFailure]:
        """End those that run with this signal, and with SIGKILL after so many seconds; returns all that have failed."""
        for sent, patience in ((number, seconds), (signal.SIGKILL, _KILLED_S)):
            for local in self._running:
                with suppress(ProcessLookupError):
                    os.killpg(self._processes[local].pid, sent)
            end = time.monotonic() + patience
            while self._running and time.monotonic() < end:
                for local in sorted(self._running):
                    if (code := self._processes[local].poll()) is not None:
                        self._ended(local, code)
                time.sleep(_POLL_S if self._running else 0)
        return dict(self._failures)

    def end_rest(self) -> None:
        """End what they have left behind: who starts again needs the port or the GPU that it holds."""
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)

    def _ended(self, local: int, code: int) -> None:
        self._running.discard(local)
        if code:
            failure = ProcessFailure(local, self._processes[local].pid, code, self._error_files[local])
            self._failures[self._generation.first_rank + local] = failure

    def _environment(self, local: int) -> dict[str, str]:
        """What torchrun gives a rank beside its own variables."""
        config, generation = self._config, self._generation
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
