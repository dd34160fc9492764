"""Drills with hosts that are network namespaces (lab/network.py), each with a disk of its own: cuts, a lost disk."""

from __future__ import annotations

import itertools
import random
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.drills import BATCH, RECIPE, Hit, hit_often, options, rows
from benchmarks.figure import Row, result, say, spread
from benchmarks.venv import HOME
from deploy.run.environment import STOP_ON_EOF, local_spec
from deploy.run.files.folders import with_muster
from deploy.send.image import commands
from lab.network import PORT, Lab, missing
from muster.checkpoint import store
from muster.files import read_lines

HOSTS, LEAST, SEED = 5, 3, 16
PATIENCE_S, RIVAL_S, START_S = 30.0, 40.0, 120.0
DISKS, EVERY, RESUME_S = 3, 50, 90.0
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
                for event in read_lines(path):
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


def trainer(lab: Lab, root: Path, every: int, least: int = 0, start: int = 1) -> Nodes:
    """Muster's trainer on all hosts, one rank each; `least` of them train on without the others."""
    count, recipe = len(lab.hosts), root.parent / "recipe.py"
    recipe.write_text(RECIPE)
    given = [*options(str(recipe), every), "--batch", str(BATCH - BATCH % count)]
    where = [(host.address, PORT, PORT + 1) for host in lab.hosts]
    spec = local_spec(root / SEEN, start, count - 1, given, PORT, 1, "Linux").grouped(least, where, "key")
    environments = []
    for node in spec.nodes:
        environment = with_muster({**node.environment, "GLOO_SOCKET_IFNAME": "eth0", "OMP_NUM_THREADS": "1"})
        if not least:
            environment["PET_RDZV_ENDPOINT"] = f"{lab.hosts[0].address}:{PORT}"
        del environment[STOP_ON_EOF]
        environments.append(environment)
    return Nodes(lab, root, commands.agent(sys.executable, given), environments)


def torchrun(lab: Lab, root: Path, count: str, module: str, *words: str) -> Nodes:
    """The rival on all hosts: `torchrun -m module words`, with the c10d store on the first one."""
    at = f"{lab.hosts[0].address}:{PORT}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", count, "--max-restarts", "9"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", at, "--rdzv-id", root.name, "-m", module, *words]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(HOME)}
    return Nodes(lab, root, [*command, "--steps", "1000000"], [environment] * len(lab.hosts))


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


@dataclass(frozen=True)
class Cut:
    """What is dropped: from which host to which. `words`: what a person would call it."""

    dropped: frozenset[tuple[int, int]]
    words: str


def draw(chance: random.Random) -> Cut:
    """A way of cutting five hosts: two sides or two hosts, in both directions or in one."""
    order = chance.sample(range(HOSTS), HOSTS)
    pair, one_way = chance.random() < 0.3, chance.random() < 0.3
    count = 1 if pair else chance.choice((1, 2))
    here, there = order[:count], order[count : count + 1] if pair else order[count:]
    links = {(a, b) for a in here for b in there}
    back = set() if one_way else {(b, a) for a, b in links}
    names = ["+".join(str(host + 1) for host in sorted(side)) for side in (here, there)]
    return Cut(frozenset(links | back), f"{names[0]} {'->' if one_way else '|'} {names[1]}")


def measure_cut(quick: bool) -> dict[str, Any]:
    """How many cuts of five hosts the majority survived, after how long, and in how many both sides trained on."""
    if why := missing():
        return result([Row("partitions of five hosts", f"not measured: {why}")])
    chance, count = random.Random(SEED), 4 if quick else 20
    cuts = [draw(chance) for _ in range(count)]
    with nodes.scratch() as scratch, Lab(HOSTS) as lab:
        run = trainer(lab, scratch / "ours", 25, LEAST)
        wait(lambda: run.trains(0.0, HOSTS), START_S, run)
        doubles: list[Cut] = []
        ours = hit_often(count, lambda number: _cut_once(lab, run, cuts[number], chance, doubles))
        left = _alone(lab, run)
        lab.stop()
        sided = [cut for cut in cuts if len(cut.dropped) > 2][: 1 if quick else 3]
        theirs = [_rival_cut(lab, scratch / f"rival-{number}", cut) for number, cut in enumerate(sided)]
    sides = Row(f"cuts of {HOSTS} hosts in which both sides trained on", f"{len(doubles)} of {count}", "", "", "0",
                not doubles)  # fmt: skip
    alone = Row("a side of two that stays cut off ends itself after seconds", f"{left:.0f}" if left else "never")
    kinds = ", ".join(cut.words for cut in cuts)
    found = rows("a cut, by a majority", ours, count, theirs, PATIENCE_S)
    return result([sides, *found[:2], alone], [f"seed {SEED}; the cuts, by host (-> one direction alone): {kinds}"])


def both(lives: Sequence[Life], since: float) -> bool:
    """Whether two groups have both done steps at a time after the cut: neither had ended when the other began."""
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
    """Seconds until the smaller side ends itself where nobody mends the cut; None if it does not."""
    here, there = range(LEAST), range(LEAST, HOSTS)
    cut = Cut(frozenset((a, b) for side, other in ((here, there), (there, here)) for a in side for b in other), "")
    with _dropped(lab, cut) as began:
        return time.time() - began if wait(lambda: run.ended(set(there)), 60.0) else None


@contextmanager
def _dropped(lab: Lab, cut: Cut) -> Iterator[float]:
    """These links drop everything inside of the block; gives when that began."""
    began = time.time()
    for source, target in sorted(cut.dropped):
        lab.wire_drops(lab.hosts[source], lab.hosts[target])
    try:
        yield began
    finally:
        lab.on_switch("ebtables", "-F", "FORWARD")


def _rival_cut(lab: Lab, root: Path, cut: Cut) -> Hit | None:
    """The same for torchrun, once: None if no three of its hosts train on."""
    run = torchrun(lab, root, f"{LEAST}:{HOSTS}", "benchmarks.rivals.bare")

    def first(since: float) -> float | None:
        lines = [line for place in range(HOSTS) for line in read_lines(run.folder(place) / "logs" / "node.log")]
        return min((line["t"] for line in lines if line["t"] > since and line["step"] == 1), default=None)

    wait(lambda: first(0.0), START_S, run)
    time.sleep(2.0)
    with _dropped(lab, cut) as began:
        trained = wait(lambda: first(began), RIVAL_S)
    lab.stop()
    return Hit(trained - began) if trained else None


def measure_disk(quick: bool) -> dict[str, Any]:
    """All is killed and the first host's run folder deleted: from which step does the run go on?"""
    if why := missing():
        return result([Row("the first host's disk is destroyed", f"not measured: {why}")])
    trials, rival_trials = (2, 1) if quick else (10, 2)
    chance, behind = random.Random(SEED), list[int]()
    with nodes.scratch() as scratch, Lab(DISKS) as lab:
        runs = [trainer(lab, scratch / "ours", EVERY)]
        ours = hit_often(trials, lambda number: _disk_once(lab, scratch, runs, number, chance, behind))
        lab.stop()
        theirs = [_rival_disk(lab, scratch / f"rival-{number}", chance) for number in range(rival_trials)]
    far = spread(behind, ".0f") if behind else "all"
    near = bool(behind) and max(behind) <= EVERY
    lost = Row(f"... behind the newest checkpoint of that disk, of {EVERY} steps", far, "", "", f"<= {EVERY}", near)
    found = rows("the first host's disk is destroyed", ours, trials, theirs, RESUME_S)
    return result([*found, lost], [f"{DISKS} hosts as network namespaces of this machine"])


def _disk_once(
    lab: Lab, scratch: Path, runs: list[Nodes], number: int, chance: random.Random, behind: list[int]
) -> Hit | None:
    run = runs[-1]
    wait(lambda: len(_events(run, 1, "copied")) >= 2, RESUME_S, run)
    time.sleep(chance.uniform(0.0, 2.0))
    began = time.time()
    lab.stop()
    reached = max(event["step"] for event in _events(run, 0, "step"))
    newest, _ = store.newest_usable(run.folder(0) / "checkpoints")
    for place in range(DISKS):  # what one start said must not be taken for the next one's
        shutil.rmtree(run.folder(place) / "ranks")
    shutil.rmtree(run.folder(0))
    runs.append(run := trainer(lab, scratch / "ours", EVERY, start=number + 2))
    resumed = wait(lambda: _events(run, 0, "resumed"), RESUME_S)
    if not (resumed and newest):
        say(run.last_words())
        return None
    behind.append(newest.manifest.step - resumed[0]["step"])
    return Hit(time.time() - began, reached - resumed[0]["step"])


def _events(run: Nodes, place: int, kind: str) -> list[dict[str, Any]]:
    """What the rank on this host has written of one kind."""
    return [event for event in read_lines(run.folder(place) / f"ranks/rank-{place}.jsonl") if event["kind"] == kind]


def _rival_disk(lab: Lab, root: Path, chance: random.Random) -> Hit | None:
    """The same for PyTorch's tutorial under torchrun, whose rank 0 saves: None if it begins anew."""
    words = ("benchmarks.rivals.snapshot", "--folder", str(root / SEEN))
    run = torchrun(lab, root, str(DISKS), *words)

    def steps() -> list[int]:
        logs = [run.folder(place) / "logs" / "node.log" for place in range(DISKS)]
        return [line["step"] for log in logs for line in read_lines(log)]

    wait(lambda: len(steps()) > 5, RESUME_S, run)
    time.sleep(chance.uniform(0.0, 1.0))
    began, reached = time.time(), max(steps())
    lab.stop()
    shutil.rmtree(run.folder(0))
    for place in range(1, DISKS):
        (run.folder(place) / "logs" / "node.log").unlink()
    run = torchrun(lab, root, str(DISKS), *words)
    first: list[int] = wait(steps, RESUME_S, run)
    lab.stop()
    return Hit(time.time() - began, reached - first[0]) if first[0] else None
