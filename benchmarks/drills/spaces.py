"""The drill with hosts that are network namespaces (lab/network.py): five hosts are cut off from each other.

How they are cut is drawn at random.
"""

from __future__ import annotations

import itertools
import random
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.drills import BATCH, RECIPE, Hit, hit_often, options, rows
from benchmarks.figure import Row, result, say
from benchmarks.venv import HOME
from deploy.run.environment import STOP_ON_EOF, local_spec
from deploy.run.files.folders import with_muster
from deploy.send.image import commands
from lab.network import PORT, Lab, missing
from muster.files import read_lines

HOSTS, LEAST, SEED = 5, 3, 16
PATIENCE_S, START_S = 30.0, 120.0
# The name of the run folder as every node sees it; outside, each host's folder has the host's number.
SEEN = "run"


@dataclass
class Life:
    """The ranks that trained together after one start: their hosts, and when they did their steps."""

    hosts: set[int] = field(default_factory=set)
    steps: list[tuple[float, int]] = field(default_factory=list)


class Nodes:
    """Muster's trainer on all hosts, of which LEAST continue to train without the others.

    All see their run folder under the same path, but each host has its own folder.
    """

    def __init__(self, lab: Lab, root: Path) -> None:
        self.lab, self.root = lab, root
        recipe, where = root.parent / "recipe.py", [(host.address, PORT, PORT + 1) for host in lab.hosts]
        recipe.write_text(RECIPE)
        given = [*options(str(recipe)), "--batch", str(BATCH - BATCH % HOSTS)]
        spec = local_spec(root / SEEN, 1, HOSTS - 1, given, PORT, 1, "Linux").grouped(LEAST, where, "key")
        own = {"GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1", "TMPDIR": str(root / SEEN / "logs")}
        self.command = commands.agent(sys.executable, given)
        self.environments = [with_muster({**node.environment, **own}) for node in spec.nodes]
        for environment in self.environments:
            del environment[STOP_ON_EOF]
        self.running: list[subprocess.Popen[bytes] | None] = [None] * len(lab.hosts)
        (root / SEEN).mkdir(parents=True, exist_ok=True)
        for place, host in enumerate(lab.hosts):
            host.setup = [f"mount --bind {self.folder(place)} {root / SEEN}"]
            self.start(place)

    def folder(self, place: int) -> Path:
        """The run folder of this host."""
        return self.root / str(place)

    def start(self, place: int) -> None:
        """Start a node that does not run, as its engine would."""
        process = self.running[place]
        if process and process.poll() is None:
            return
        folder = self.folder(place)
        for part in ("nodes", "outcome", "ranks", "logs"):
            (folder / part).mkdir(parents=True, exist_ok=True)
        with (folder / "logs" / "node.log").open("ab") as log:
            self.running[place] = self.lab.hosts[place].start(
                *self.command,
                env=self.environments[place],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=str(HOME),
            )

    def ended(self, places: set[int]) -> bool:
        """Whether all of these nodes have ended."""
        return all(process.poll() is not None for place in places if (process := self.running[place]))

    def lives(self) -> list[Life]:
        """The groups of ranks that met at the same place and did steps, in the order of their first steps."""
        groups: dict[str, Life] = {}
        for place in range(len(self.lab.hosts)):
            meets = self.folder(place) / "meets"
            where = dict(line.split() for line in meets.read_text().splitlines()) if meets.exists() else {}
            for path in (self.folder(place) / "ranks").glob("rank-*.jsonl"):
                at = ""
                for event in read_lines(path):
                    if event["kind"] == "started":
                        at = where.get(str(event["pid"]), "")
                    elif event["kind"] == "step":
                        life = groups.setdefault(at, Life())
                        life.hosts.add(place)
                        life.steps.append((event["t"], event["step"]))
        return sorted(groups.values(), key=lambda life: min(life.steps))

    def trains(self, since: float, least: int) -> tuple[float, set[int]] | None:
        """The first step of a group of at least `least` hosts that began its steps after `since`; and its hosts."""
        for life in self.lives():
            first = min(life.steps)[0]
            if first > since and len(life.hosts) >= least:
                return first, life.hosts
        return None

    def last_words(self) -> str:
        """The end of each node's log."""
        logs = [self.folder(place) / "logs" / "node.log" for place in range(len(self.lab.hosts))]
        return "\n".join(f"{log.parent.parent.name}: {log.read_text(errors='replace')[-800:]}" for log in logs)


def wait(condition: Callable[[], Any], limit_s: float, run: Nodes | None = None) -> Any:
    """The value of `condition` once it is true.

    None after the limit, or with `run` a TimeoutError with its last words.
    """
    end = time.monotonic() + limit_s
    while time.monotonic() < end:
        if value := condition():
            return value
        time.sleep(0.1)
    if run:
        raise TimeoutError(f"{limit_s:.0f} s without a step\n{run.last_words()}")
    return None


@dataclass(frozen=True)
class Cut:
    """A cut.

    `dropped`: from which host to which packets are dropped. `words`: how a person would describe it.
    """

    dropped: frozenset[tuple[int, int]]
    words: str


def draw(chance: random.Random) -> Cut:
    """Draw a way to cut five hosts: between two sides or two hosts, in both directions or in one."""
    order = chance.sample(range(HOSTS), HOSTS)
    pair, one_way = chance.random() < 0.3, chance.random() < 0.3
    count = 1 if pair else chance.choice((1, 2))
    here, there = order[:count], order[count : count + 1] if pair else order[count:]
    links = {(a, b) for a in here for b in there}
    back = set() if one_way else {(b, a) for a, b in links}
    names = ["+".join(str(host + 1) for host in sorted(side)) for side in (here, there)]
    return Cut(frozenset(links | back), f"{names[0]} {'->' if one_way else '|'} {names[1]}")


def measure_cut(quick: bool) -> dict[str, Any]:
    """How many cuts of five hosts the majority survived, after how long, and in how many both sides trained."""
    if why := missing():
        return result([Row("partitions of five hosts", f"not measured: {why}")])
    chance, count = random.Random(SEED), 4 if quick else 20
    cuts = [draw(chance) for _ in range(count)]
    with nodes.scratch() as scratch, Lab(HOSTS) as lab:
        run = Nodes(lab, scratch / "ours")
        wait(lambda: run.trains(0.0, HOSTS), START_S, run)
        doubles: list[Cut] = []
        ours = hit_often(count, lambda number: _cut_once(lab, run, cuts[number], chance, doubles))
        left = _alone(lab, run)
    sides = Row(f"cuts of {HOSTS} hosts in which both sides trained on", f"{len(doubles)} of {count}", "", "", "0",
                not doubles)  # fmt: skip
    alone = Row("a side of two that stays cut off ends itself after seconds", f"{left:.0f}" if left else "never")
    kinds = ", ".join(cut.words for cut in cuts)
    found = rows("a cut, by a majority", ours, count, PATIENCE_S)
    return result([sides, *found[:2], alone], [f"seed {SEED}; the cuts, by host (-> one direction alone): {kinds}"])


def both(lives: Sequence[Life], since: float) -> bool:
    """Whether two groups trained at the same time after the cut: neither had ended when the other began."""
    spans = [(min(steps), max(steps)) for life in lives if (steps := [t for t, _ in life.steps if t > since])]
    spans.sort()
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))


def _cut_once(lab: Lab, run: Nodes, cut: Cut, chance: random.Random, doubles: list[Cut]) -> Hit | None:
    time.sleep(chance.uniform(0.3, 1.5))
    with _dropped(lab, cut) as began:
        wait(lambda: run.trains(began, LEAST), PATIENCE_S)
        time.sleep(3.0)
        trained = run.trains(began, LEAST)
    names = "+".join(str(place + 1) for place in sorted(trained[1])) if trained else "nobody"
    say(f"{cut.words}: {names} trained on")
    if both(run.lives(), began):
        doubles.append(cut)
    healed = time.time()

    def whole() -> bool:
        for place in range(HOSTS):
            run.start(place)
        return run.trains(healed, HOSTS) is not None

    if not wait(whole, 60.0):
        say(f"not all five train again\n{run.last_words()}")
        return None
    return Hit(trained[0] - began) if trained else None


def _alone(lab: Lab, run: Nodes) -> float | None:
    """Seconds until the smaller side ends itself if the cut is not mended; None if it does not."""
    here, there = range(LEAST), range(LEAST, HOSTS)
    cut = Cut(frozenset((a, b) for side, other in ((here, there), (there, here)) for a in side for b in other), "")
    with _dropped(lab, cut) as began:
        return time.time() - began if wait(lambda: run.ended(set(there)), 60.0) else None


@contextmanager
def _dropped(lab: Lab, cut: Cut) -> Iterator[float]:
    """Drop all packets on these links inside the block; yields when that began."""
    began = time.time()
    for source, target in sorted(cut.dropped):
        lab.wire_drops(lab.hosts[source], lab.hosts[target])
    try:
        yield began
    finally:
        lab.on_switch("ebtables", "-F", "FORWARD")
