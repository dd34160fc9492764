"""The nodes of a run on this machine: each is a real agent, as a process. Standard library only."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from deploy.run.environment import RUN_DIR, STOP_ON_EOF, Placement, Rendezvous, node_environment, node_names
from lab.ports import free_port
from muster.files import read_lines
from trainer.node.parent_death import die_with_parent

from . import processes
from .finding import NOT_MET, Finding
from .network import Place

HOME = Path(__file__).resolve().parents[1]
SCRIPTS, RECIPES = Path(__file__).parent / "scripts", Path(__file__).parent / "recipes"
_STANDINS = Path(__file__).parent / "standins"
MOST_RESTARTS, RANK_RESTARTS = 3, 5
FINAL = (0, 2, 75)
_POLL_S = 0.05
# Prefixes of an outer run's variables: a node must get only its own run's.
_FOREIGN = ("PET_", "MUSTER_", "TORCHELASTIC_", "NCCL_", "GLOO_", "TORCH_NCCL_", "TORCH_FR_")
# What an agent gets in addition to the variables that torchrun needs.
_AGENT_ONLY = {"PET_RDZV_CONF", "PET_MONITOR_INTERVAL", "PET_SHUTDOWN_TIMEOUT", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE"}
_FOREIGN_NAMES = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT"}

Variables = Mapping[str, str]


class Run:
    """The nodes of one start in `folder`, from entering to leaving the `with` block.

    `arguments` are the agent's; with `module` they are that module's, under torch's own torchrun. `places` contains
    each node's host, `variables` what each node gets in addition to its own, `own` what only node i gets. `restarts`:
    how often the nodes may restart their ranks; None means never for a script (the default everywhere), and
    RANK_RESTARTS for the trainer. torch's own torchrun gets none of the settings that Muster gives its agents.
    """

    def __init__(
        self,
        folder: Path,
        arguments: Sequence[str],
        places: Sequence[Place] = (Place(),),
        ranks: int = 1,
        start: int = 1,
        variables: Variables | None = None,
        own: Callable[[int], Variables] = lambda _: {},
        module: str = "",
        restarts: int | None = None,
    ) -> None:
        self.folder, self._places = folder, places
        starter = ["torch.distributed.run", "-m", module] if module else ["muster.trainer.node", "agent"]
        self._command = [sys.executable, "-m", *starter, *arguments]
        for part in ("nodes", "outcome", "ranks", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        if restarts is None:
            restarts = 0 if module or arguments[:1] == ["--script"] else RANK_RESTARTS
        meeting = Rendezvous(f"{places[0].address}:{free_port()}", f"{folder.name}-{start}")
        threads = max(1, min(4, len(os.sched_getaffinity(0)) // (len(places) * ranks)))
        self._environments: list[dict[str, str]] = []
        self.names = node_names(len(places) - 1)
        for number, place in enumerate(places):
            placement = Placement(self.names[number], number, len(places), ranks, place.interface, threads)
            made = node_environment(placement, meeting, folder.name, str(folder), restarts)
            made = {name: value for name, value in made.items() if not (module and name in _AGENT_ONLY)}
            self._environments.append({**made, STOP_ON_EOF: "1", **(variables or {}), **own(number)})
        self._nodes: list[subprocess.Popen[bytes]] = []
        self.restarts = 0

    def __enter__(self) -> Run:
        for number in reversed(range(len(self._places))):  # in reverse: nothing may depend on the order
            self._nodes.insert(0, self._start(number))
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.kill()

    def _start(self, number: int) -> subprocess.Popen[bytes]:
        with (self.folder / "logs" / f"{self.names[number]}.log").open("ab") as log:
            return subprocess.Popen(
                self._command,
                env=environment(self._environments[number]),
                cwd=HOME,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                preexec_fn=lambda: self._settle(number),
            )

    def _settle(self, number: int) -> None:
        """Runs in the node's process before the agent starts.

        Enter the host's network, and end with the parent process.
        """
        self._places[number].enter()
        die_with_parent(signal.SIGTERM)

    def kill(self) -> None:
        """Kill every process of the run with SIGKILL."""
        processes.end(RUN_DIR, str(self.folder))
        for node in self._nodes:
            node.wait()
            if node.stdin:
                node.stdin.close()

    def pids(self) -> list[int]:
        """Every living process of the run."""
        return processes.labelled(RUN_DIR, str(self.folder))

    def processes_below(self) -> list[int]:
        """Every living process of the run below the agents, or below a rival's torchruns."""
        heads = {node.pid for node in self._nodes}
        return [pid for pid in self.pids() if pid not in heads]

    def codes(self) -> list[int | None]:
        """Each node's exit code; None while it runs."""
        return [node.poll() for node in self._nodes]

    def bring_back(self) -> None:
        """Restart the nodes that failed, as a supervisor would."""
        for number, code in enumerate(self.codes()):
            if code is not None and code not in FINAL and self.restarts < MOST_RESTARTS:
                self.restarts += 1
                self._nodes[number] = self._start(number)

    def wait(self, condition: Callable[[], Any], what: str, seconds: float, restart: bool = False) -> Any:
        """The first true value of `condition`. Raises Late if there is none in time, or if all nodes have ended."""
        limit = time.monotonic() + seconds
        while not (value := condition()):
            over = None not in self.codes()
            if restart:
                self.bring_back()
            if over and not restart and not condition():
                raise Late(f"the run ended with {self.codes()} before {what}", self.last_words())
            if time.monotonic() > limit:
                raise Late(f"waited {seconds:.0f} s for {what}", self.last_words())
            time.sleep(_POLL_S)
        return value

    def finish(self, seconds: float, restart: bool = False) -> None:
        """Wait until every node has ended successfully. Raises Late."""
        final = FINAL if restart else range(-256, 256)
        self.wait(lambda: all(code in final for code in self.codes()), "its end", seconds, restart)
        if any(self.codes()):
            raise Late(f"exit codes {self.codes()}", self.last_words())

    def events(self, rank: int, kind: str = "") -> list[dict[str, Any]]:
        """The events that one rank wrote, of one kind or of all kinds."""
        written = read_lines(self.folder / "ranks" / f"rank-{rank}.jsonl")
        return [line for line in written if line.get("kind") == kind or not kind]

    def metrics(self) -> list[dict[str, Any]]:
        """The trainer's metrics, without evaluations."""
        return [line for line in read_lines(self.folder / "metrics.jsonl") if "loss" in line]

    def console_lines(self) -> list[dict[str, Any]]:
        """The JSON lines that the nodes have printed so far, sorted by time: a rival's rank 0 may be on any node."""
        printed = [line for name in self.names for line in read_lines(self.folder / "logs" / f"{name}.log")]
        return sorted(printed, key=lambda line: float(line["t"]))

    def records_of_ranks(self) -> list[dict[str, Any]]:
        """What each rank of gpu_check's scripts wrote to the run folder, in the order of ranks."""
        return [json.loads(path.read_text()) for path in sorted(self.folder.glob("seen-*.json"))]

    def rank_log(self, rank: int) -> str:
        """The log of one of the trainer's ranks."""
        log = self.folder / "logs" / f"rank-{rank}.log"
        return log.read_text(errors="replace") if log.exists() else ""

    def logs(self) -> str:
        """All output of nodes and ranks."""
        return "\n".join(log.read_text(errors="replace") for log in sorted(self.folder.glob("logs/*.log")))

    def last_words(self) -> str:
        """The end of every log."""
        logs = sorted(self.folder.glob("logs/*.log"))
        return "\n".join(f"{log.name}: {log.read_text(errors='replace')[-1500:]}" for log in logs)


class Late(Exception):
    """Something did not happen in time. `words`: the end of the logs."""

    def __init__(self, message: str, words: str) -> None:
        super().__init__(message)
        self.words = words

    def finding(self, what: str) -> Finding:
        """The finding for an attempt that this error ended."""
        return Finding(what, NOT_MET, str(self), words=self.words)


def environment(more: Variables) -> dict[str, str]:
    """A node's environment: this process's without an outer run's variables, with this checkout on the import path."""
    inherited = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(_FOREIGN) and name not in _FOREIGN_NAMES
    }
    others = [path for path in inherited.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(HOME))]
    if importlib.util.find_spec("tensorboardX") is None:
        others.append(str(_STANDINS))
    return {**inherited, **more, "PYTHONPATH": os.pathsep.join([str(HOME), *others])}
