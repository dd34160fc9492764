"""The only module for local processes: starts nodes, with which variables of the shell; watches, restarts, ends them.

A process belongs to a run if MUSTER_RUN_DIR in its environment leads to that run's folder: the variable is the label,
as `muster.run` is on containers. Every child inherits it, so no process of a node can hide. (MUSTER_RUN_ID is not
enough: two checkouts can start runs of the same name in the same minute.)
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import psutil

from ..core.errors import DeployError
from ..core.facts import NodeState
from ..run.environment import NODE, PLAIN_TORCHRUN, RUN_DIR, SECRETS_PRESENT, NodeSpec
from ..run.files import own_files
from ..run.files.folders import with_muster

Process = psutil.Process
MOST_RESTARTS = 3
# How long a run waits for processes that it has killed: with a hung driver or file server, one may never end.
_KILLED_S = 10.0
# If a node fails because of another node, it may end before that other node has reported its verdict; with a verdict,
# no node is restarted. So wait this long before a restart. It is shorter than EXIT_SETTLES_S (run/outcome.py), after
# which the end of a node counts as the run's end.
_VERDICT_S = 1.0
# A shell inside another run or torchrun has these variables; a node must get only the variables of its own run.
_FOREIGN = ("PET_", "MUSTER_", "TORCHELASTIC_")
_FOREIGN_NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}


@dataclass
class _Node:
    spec: NodeSpec
    log: Path
    process: subprocess.Popen[bytes]
    restarts: int = 0
    ended_at: float = 0.0  # when this was first seen, monotonic


@dataclass(frozen=True)
class Head:
    """A node's agent: its variables, its Python, and its current folder."""

    environment: dict[str, str]
    python: str
    folder: Path


class LocalNodes:
    """The nodes of one run as processes. Each has its own session, and this process holds its standard input open."""

    def __init__(
        self,
        run_dir: Path,
        command: Iterable[str],
        home: Path,
        script: bool = False,
        most_restarts: int = MOST_RESTARTS,
        secrets: Mapping[str, str] | None = None,
    ) -> None:
        self._secrets = {**secrets, SECRETS_PRESENT: ",".join(secrets)} if secrets else {}
        self._run_dir, self._command, self._home, self._script = run_dir, tuple(command), home, script
        self._label = os.path.realpath(run_dir)
        self._most_restarts = most_restarts
        self._nodes: dict[str, _Node] = {}

    def start(self, spec: NodeSpec, log: Path) -> None:
        """Start one node; its output is appended to `log`."""
        self._nodes[spec.name] = _Node(spec, log, self._spawn(spec, log))

    def states(self, may_restart: Callable[[NodeState], bool]) -> list[NodeState]:
        """The state of each node. A node that ended is restarted if `may_restart` agrees, within the limit."""
        return [self._state(node, may_restart) for node in self._nodes.values()]

    def signal_all(self, number: signal.Signals) -> None:
        """Send a signal to every node's agent, which passes it on."""
        for node in self._nodes.values():
            if node.process.poll() is None:
                node.process.send_signal(number)

    def end(self) -> None:
        """Kill every process of the run, then reap the nodes. A process that waits in the kernel may remain."""
        until = time.monotonic() + _KILLED_S
        # Repeat until none is left: a process that was just being forked may have been missing from the list.
        while (members := labelled(self._run_dir)) and time.monotonic() < until:
            kill(members)
        for node in self._nodes.values():
            node.process.poll()
            if node.process.stdin:
                node.process.stdin.close()

    def _state(self, node: _Node, may_restart: Callable[[NodeState], bool]) -> NodeState:
        code = node.process.poll()
        if code is None:
            return NodeState(node.spec.name, "running", None, node.restarts)
        node.ended_at = node.ended_at or time.monotonic()
        state = NodeState(node.spec.name, "exited", code, node.restarts)
        is_awaited = code > 0 and time.monotonic() < node.ended_at + _VERDICT_S
        if is_awaited or node.restarts >= (node.spec.restarts or self._most_restarts) or not may_restart(state):
            return state
        # A killed agent leaves its ranks behind; they would keep the GPU and disturb the next rendezvous.
        kill(labelled(self._run_dir, node.spec.name))
        if node.process.stdin:
            node.process.stdin.close()
        node.process = self._spawn(node.spec, node.log)
        node.restarts, node.ended_at = node.restarts + 1, 0.0
        return NodeState(node.spec.name, "running", code, node.restarts)

    def _with_agent(self, environment: dict[str, str]) -> dict[str, str]:
        environment = with_muster(environment)
        if not self._script:
            return environment
        path = environment.get("PATH", "").split(os.pathsep)
        # A shell script calls `python` and `torchrun`: these must be from the Python that Muster chose, even if it is
        # not active.
        own = os.path.dirname(self._command[0])
        path = path if own in path else [own, *filter(None, path)]
        return {**environment, "PATH": os.pathsep.join(path)}

    def _spawn(self, spec: NodeSpec, log: Path) -> subprocess.Popen[bytes]:
        inherited = {
            name: value
            for name, value in os.environ.items()
            if name == PLAIN_TORCHRUN or not (name.startswith(_FOREIGN) or name in _FOREIGN_NAMES)
        }
        with own_files.open_to_append(log.parent.parent, f"{log.parent.name}/{log.name}") as output:
            try:
                return subprocess.Popen(
                    (*self._command, *spec.arguments),
                    env=self._with_agent(inherited | spec.environment | self._secrets | {RUN_DIR: self._label}),
                    cwd=self._home,
                    stdin=subprocess.PIPE,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    start_new_session=True,
                )
            except OSError as fault:
                raise DeployError(f"{spec.name}: cannot start {self._command[0]}: {fault.strerror}") from fault


def labelled(run_dir: Path, node: str = "") -> list[Process]:
    """Every live process of a run, or of one of its nodes."""
    label = os.path.realpath(run_dir)
    return [
        process
        for process, environment in _muster_processes()
        if environment[RUN_DIR] == label and node in ("", environment.get(NODE))
    ]


def runs_alive(runs: Path) -> dict[str, list[Process]]:
    """Live processes by run, only for runs whose folder is in `runs`: another checkout's runs are in another folder."""
    alive: dict[str, list[Process]] = {}
    runs = runs.resolve()
    for process, environment in _muster_processes():
        folder = Path(environment[RUN_DIR])
        if folder.parent == runs:
            alive.setdefault(folder.name, []).append(process)
    return alive


def agents(processes: Iterable[Process]) -> list[Process]:
    """The processes whose parent is not among them: these pass a stop on to the others."""
    members = list(processes)
    numbers = {process.pid for process in members}
    heads = []
    for process in members:
        with suppress(psutil.Error):
            if process.ppid() not in numbers:
                heads.append(process)
    return heads


def heads(run_dir: Path) -> list[Head]:
    """The agent of each node of a run."""
    nodes = []
    for process in agents(labelled(run_dir)):
        with suppress(psutil.Error):
            # Any user can give a process this label, and root would then run its program.
            if process.uids().real == os.getuid():
                nodes.append(Head(process.environ(), process.exe(), Path(process.cwd())))
    return nodes


def drivers(run_dir: Path) -> list[Process]:
    """The command that drives a run: it holds the lock of the run's folder open, and is not a process of the run."""
    holding, lock = list[Process](), os.path.realpath(run_dir / ".lock")
    if not os.path.lexists(lock):
        return holding
    members = {process.pid for process in labelled(run_dir)}
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            if process.pid not in (os.getpid(), *members) and process.uids().real == os.getuid():
                holding += [process] * any(file.path == lock for file in process.open_files())
    return holding


def send_signal(processes: Iterable[Process], number: signal.Signals) -> None:
    """Send a signal, and continue a process that a shell has suspended."""
    for process in processes:
        with suppress(psutil.Error):
            process.send_signal(number)
            process.resume()


def stop(processes: list[Process], patience_s: float) -> bool:
    """Send SIGTERM to the agents, and SIGKILL to processes left after `patience_s`. True if none had to be killed."""
    send_signal(agents(processes), signal.SIGTERM)
    left = _await_end(processes, patience_s)
    kill(left)
    return not left


def kill(processes: Iterable[Process]) -> None:
    """Send SIGKILL, then wait up to 5 s until none of them runs."""
    doomed = list(processes)
    send_signal(doomed, signal.SIGKILL)
    _await_end(doomed, 5)


def _await_end(processes: Iterable[Process], patience_s: float) -> list[Process]:
    """The processes that still run after `patience_s`. A zombie does not run: it only waits for its parent."""
    end = time.monotonic() + patience_s
    while (left := [process for process in processes if is_running(process)]) and time.monotonic() < end:
        time.sleep(0.01)
    return left


def is_running(process: Process) -> bool:
    """Whether a process runs. A zombie does not."""
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False


def run(command: Iterable[str], home: Path, say: Callable[[str], None]) -> int:
    """Run a command and `say` each line of its standard error; return its exit code."""
    with subprocess.Popen([*command], cwd=home, stderr=subprocess.PIPE, text=True, errors="replace") as child:
        for line in child.stderr or ():
            say(line.rstrip("\n"))
    return child.returncode


def _muster_processes() -> Iterable[tuple[Process, dict[str, str]]]:
    for process in psutil.process_iter():
        with suppress(psutil.Error, OSError):
            environment = process.environ()
            if process.pid != os.getpid() and RUN_DIR in environment and process.status() != psutil.STATUS_ZOMBIE:
                # Earlier releases gave their runs the folder's path as it was typed.
                yield process, {**environment, RUN_DIR: os.path.realpath(environment[RUN_DIR])}
