"""Nodes of one run on hosts that are network namespaces (lab/network.py), each with a disk of its own."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.venv import HOME
from deploy.run.environment import STOP_ON_EOF, local_spec
from deploy.run.folders import with_muster
from deploy.send.image import commands
from lab.network import PORT, Lab

# The run folder as every node sees it; outside, each host's own has the host's number.
SEEN = "run"


@dataclass
class Life:
    """The ranks that trained together since one start: the hosts, and when they did their steps."""

    hosts: set[int] = field(default_factory=set)
    steps: list[tuple[float, int]] = field(default_factory=list)


class Nodes:
    """The nodes of one start, one on each host. All see their run folder at one path, and each host has its own."""

    def __init__(self, lab: Lab, root: Path, command: Sequence[str], environments: Sequence[Mapping[str, str]]) -> None:
        self.lab, self.root, self.command, self.environments = lab, root, command, environments
        self.running: list[subprocess.Popen[bytes] | None] = [None] * len(lab.hosts)
        (root / SEEN).mkdir(parents=True, exist_ok=True)
        for place, host in enumerate(lab.hosts):
            host.setup = [f"mount --bind {self.folder(place)} {root / SEEN}"]
            self.start(place)

    def folder(self, place: int) -> Path:
        """The run folder of this host."""
        return self.root / str(place)

    def start(self, place: int) -> None:
        """Start a node that does not run, as its engine does."""
        process = self.running[place]
        if process and process.poll() is None:
            return
        folder = self.folder(place)
        for part in ("nodes", "outcome", "ranks", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        environment = {**self.environments[place], "TMPDIR": str(self.root / SEEN / "logs")}
        with (folder / "logs" / "node.log").open("ab") as log:
            self.running[place] = self.lab.hosts[place].start(
                *self.command, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=str(HOME)
            )

    def ended(self, places: set[int]) -> bool:
        """Whether all of these nodes have ended."""
        return all(process.poll() is not None for place in places if (process := self.running[place]))

    def lives(self) -> list[Life]:
        """The groups of ranks that met in one place and did steps, the first one first."""
        groups: dict[str, Life] = {}
        for place in range(len(self.lab.hosts)):
            meets = self.folder(place) / "meets"
            where = dict(line.split() for line in meets.read_text().splitlines()) if meets.exists() else {}
            for path in (self.folder(place) / "ranks").glob("rank-*.jsonl"):
                at = ""
                for event in nodes.lines(path):
                    if event["kind"] == "started":
                        at = where.get(str(event["pid"]), "")
                    elif event["kind"] == "step":
                        life = groups.setdefault(at, Life())
                        life.hosts.add(place)
                        life.steps.append((event["t"], event["step"]))
        return sorted(groups.values(), key=lambda life: min(life.steps))

    def trains(self, since: float, least: int) -> tuple[float, set[int]] | None:
        """When a group of at least so many hosts, which began its steps since then, did its first; and its hosts."""
        for life in self.lives():
            first = min(life.steps)[0]
            if first > since and len(life.hosts) >= least:
                return first, life.hosts
        return None

    def last_words(self) -> str:
        """The end of each node's log."""
        logs = [self.folder(place) / "logs" / "node.log" for place in range(len(self.lab.hosts))]
        return "\n".join(f"{log.parent.parent.name}: {log.read_text(errors='replace')[-800:]}" for log in logs)


def trainer(lab: Lab, root: Path, options: Sequence[str], least: int = 0, start: int = 1) -> Nodes:
    """Muster's trainer on all hosts, one rank each; `least` of them train on without the others."""
    count = len(lab.hosts)
    where = [(host.address, PORT, PORT + 1) for host in lab.hosts]
    spec = local_spec(root / SEEN, start, count - 1, options, PORT, 1, "Linux").grouped(least, where, "key")
    environments = []
    for node in spec.nodes:
        environment = with_muster({**node.environment, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"})
        if not least:
            environment["PET_RDZV_ENDPOINT"] = f"{lab.hosts[0].address}:{PORT}"
        del environment[STOP_ON_EOF]
        environments.append(environment)
    return Nodes(lab, root, commands.agent(sys.executable, options), environments)


def wait(condition: Callable[[], Any], limit_s: float, run: Nodes | None = None) -> Any:
    """What `condition` returns once that is true, else None. With `run`, raises TimeoutError with its last words."""
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    if run:
        raise TimeoutError(f"{limit_s:.0f} s without a step\n{run.last_words()}")
    return None
