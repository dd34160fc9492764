"""Runs to measure: nodes of ours, or a rival under bare torchrun, as processes of this machine; all gone at the end."""

from __future__ import annotations

import os
import platform
import random
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Any

import psutil

from benchmarks.venv import HOME
from deploy.local.processes import MOST_RESTARTS, LocalNodes, labelled
from deploy.run.environment import NodeSpec, local_spec
from deploy.send.image import commands
from lab.ports import free_port
from muster.files import read_lines

POLL_S = 0.005
# What `local_spec` gives a node beyond what torchrun cannot do without: a rival gets torchrun's own defaults.
_OURS_ALONE = {"PET_RDZV_CONF", "PET_MONITOR_INTERVAL", "PET_SHUTDOWN_TIMEOUT", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}


def cores() -> int:
    """The cores that this process may use: the machine may have more (taskset)."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def scratch() -> Iterator[Path]:
    """A folder for the run folders of one benchmark."""
    with tempfile.TemporaryDirectory(prefix="muster-bench-") as folder:
        yield Path(folder)


def run_folder(scratch_folder: Path, name: str) -> Path:
    """A new run folder."""
    folder = scratch_folder / name
    for part in ("nodes", "outcome", "ranks", "logs"):
        (folder / part).mkdir(parents=True)
    return folder


class Run:
    """The nodes of one start in `folder`, one rank each, from entering to leaving the `with`."""

    def __init__(
        self, folder: Path, command: Sequence[str], nodes: Sequence[NodeSpec], restarts: int = MOST_RESTARTS
    ) -> None:
        self.folder, self.specs = folder, nodes
        self._nodes = LocalNodes(folder, command, HOME, most_restarts=restarts)
        self.began = 0.0

    def __enter__(self) -> Run:
        self.began = time.time()
        for spec in self.specs:
            self._nodes.start(spec, self.folder / "logs" / f"{spec.name}.log")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._nodes.end()

    @property
    def names(self) -> list[str]:
        """The nodes by place."""
        return [spec.name for spec in self.specs]

    def bring_back(self, name: str = "") -> None:
        """Start the nodes again that have ended, or this one of them, as `fab up` does."""
        self._nodes.states(lambda state: state.node == name or not name)

    def ask(self) -> None:
        """Ask every node to stop."""
        self._nodes.signal_all(signal.SIGTERM)

    def codes(self) -> list[int | None]:
        """Each node's exit code, None while it runs."""
        return [state.code for state in self._nodes.states(lambda _: False)]

    def finish(self, limit_s: float = 120.0) -> None:
        """Wait until every node has ended well. Raises RuntimeError with the last lines said when one has not."""
        self.wait(lambda: None not in self.codes(), limit_s)
        if any(self.codes()):
            raise RuntimeError(f"{self.folder.name}: exit codes {self.codes()}\n{self.last_words()}")

    def wait(self, condition: Callable[[], Any], limit_s: float = 60.0, poll_s: float = POLL_S) -> Any:
        """What `condition` returns once that is true. Raises TimeoutError with the last lines said."""
        value = self.wait_or_none(condition, limit_s, poll_s)
        if not value:
            raise TimeoutError(f"{self.folder.name}: waited {limit_s:.0f} s\n{self.last_words()}")
        return value

    def wait_or_none(self, condition: Callable[[], Any], limit_s: float, poll_s: float = POLL_S) -> Any:
        """As `wait`, but None when the time is over."""
        end = time.monotonic() + limit_s
        while time.monotonic() < end:
            if value := condition():
                return value
            time.sleep(poll_s)
        return None

    def kill_everything(self) -> None:
        """SIGKILL to every process of the run, in no particular order, with nothing in between."""
        doomed = labelled(self.folder)
        random.shuffle(doomed)
        for process in doomed:
            try:
                process.kill()
            except psutil.NoSuchProcess:
                continue
        self._nodes.end()

    def events(self, rank: int = 0) -> list[dict[str, Any]]:
        """The events a rank of ours has written so far."""
        return read_lines(self.folder / "ranks" / f"rank-{rank}.jsonl")

    def console_lines(self) -> list[dict[str, Any]]:
        """The JSON lines a rival has printed so far, on whichever node its rank 0 came to be, by time."""
        return console_lines(self.folder)

    def last_words(self) -> str:
        """The end of every log."""
        return "\n".join(f"{log.name}: {log.read_text()[-1500:]}" for log in sorted(self.folder.glob("logs/*.log")))


def ours(folder: Path, workers: int, arguments: Sequence[str], start: int = 1) -> Run:
    """The trainer on a master and `workers` more nodes, as `make up` starts it."""
    return Run(folder, commands.agent(sys.executable, arguments), _specs(folder, workers, arguments, start))


def group(
    folder: Path,
    workers: int,
    arguments: Sequence[str],
    least: int,
    where: Sequence[tuple[str, int, int]],
    key: str,
) -> Run:
    """The same, of which `least` nodes train on without the others (--min-nodes)."""
    made = local_spec(folder, 1, workers, arguments, 0, cores(), platform.system()).grouped(least, where, key)
    return Run(folder, commands.agent(sys.executable, arguments), made.nodes, restarts=1000)


def rival(folder: Path, workers: int, module: str, arguments: Sequence[str] = (), start: int = 1) -> Run:
    """`torchrun -m module arguments` on as many nodes, with torchrun's defaults, but as many restarts as ours."""
    specs = [
        replace(spec, environment={k: v for k, v in spec.environment.items() if k not in _OURS_ALONE})
        for spec in _specs(folder, workers, arguments, start)
    ]
    return Run(folder, (sys.executable, "-m", "torch.distributed.run", "-m", module, *arguments), specs)


def console_lines(folder: Path) -> list[dict[str, Any]]:
    """The JSON lines on the nodes' consoles, by time."""
    printed = [line for log in folder.glob("logs/*.log") for line in read_lines(log)]
    return sorted(printed, key=lambda line: float(line["t"]))


def _specs(folder: Path, workers: int, arguments: Sequence[str], start: int) -> tuple[NodeSpec, ...]:
    nodes = local_spec(folder, start, workers, arguments, free_port(), cores(), platform.system()).nodes
    # Killed, an agent or a torchrun leaves its temporary folder behind: then it shall go with the run's.
    return tuple(replace(node, environment={**node.environment, "TMPDIR": str(folder / "logs")}) for node in nodes)
