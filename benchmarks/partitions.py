"""The network of five hosts is cut, in ways drawn at random: does a majority train on, and nobody else?

    python -m benchmarks.partitions [--quick]

Hosts are network namespaces (lab/network.py), each with a disk of its own. Ours is the trainer with --min-nodes 3, in
one run: a cut, until others train on and some seconds more, then all links are mended and all five train again. A cut
parts the hosts in two sides, or two hosts from each other; in both directions or in one. Each rank notes each step that
its optimizer has done: two groups of ranks whose steps lie between each other's have both trained on. The rival is the
bare DDP loop under `torchrun --nnodes 3:5` (c10d), a run for each cut.
"""

from __future__ import annotations

import itertools
import random
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.spaces import Life, Nodes, trainer, wait
from benchmarks.venv import HOME
from lab.network import PORT, Lab, missing

HOSTS, LEAST, SEED = 5, 3, 16
PATIENCE_S, RIVAL_S, START_S = 30.0, 40.0, 120.0
RECIPE = """
import os, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    with open(os.environ["MUSTER_RUN_DIR"] + "/meets", "a") as file:  # the ranks of one start meet in one place
        file.write(f"{os.getpid()} {os.environ['MASTER_ADDR']}:{os.environ['MASTER_PORT']}\\n")
    return nn.Linear(1, 1)

def datasets(data):
    return TensorDataset(torch.arange(203)), TensorDataset(torch.arange(4))

def loss(model, batch):
    time.sleep(0.02)
    return model(batch[0].float()[:, None]).square().mean()
"""
Link = tuple[int, int]


@dataclass(frozen=True)
class Cut:
    """What is dropped: from which host to which. `sides`: what a person would call it."""

    dropped: frozenset[Link]
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


def measure(quick: bool) -> dict[str, Any]:
    """How many cuts the majority survived, after how long, and in how many both sides trained on."""
    if why := missing():
        return result([Row("partitions of five hosts", f"not measured: {why}")])
    chance, count = random.Random(SEED), 4 if quick else 20
    cuts = [draw(chance) for _ in range(count)]
    with nodes.scratch() as scratch, Lab(HOSTS) as lab:
        after, doubles, left = _ours(lab, scratch, cuts, chance)
        lab.stop()
        sided = [cut for cut in cuts if len(cut.dropped) > 2][: 1 if quick else 3]
        theirs = [_rival(lab, scratch / f"rival-{number}", cut) for number, cut in enumerate(sided)]
    lived = [each for each in theirs if each is not None]
    rows = [
        Row(
            f"cuts of {HOSTS} hosts in which both sides trained on",
            f"{doubles} of {len(after)}",
            target="0",
            met=doubles == 0,
        ),
        Row(
            "... in which a majority trained on",
            f"{sum(each is not None for each in after)} of {count}",
            f"torchrun {len(lived)} of {len(theirs)}",
            target=f"{count} of {count}",
            met=None not in after and len(after) == count,
        ),
        Row(
            "... after seconds",
            spread([each for each in after if each is not None] or [float("nan")]),
            f"torchrun {spread(lived)}" if lived else f"torchrun: not in {RIVAL_S:.0f} s",
        ),
        Row("a side of two that stays cut off ends itself after seconds", f"{left:.0f}" if left else "never"),
    ]
    kinds = ", ".join(cut.words for cut in cuts)
    return result(rows, [f"seed {SEED}; the cuts, by host (-> one direction alone): {kinds}"])


def both(lives: Sequence[Life], since: float) -> bool:
    """Whether two groups have both done steps at a time after the cut: neither had ended when the other began."""
    spans = [(min(steps), max(steps)) for life in lives if (steps := [t for t, _ in life.steps if t > since])]
    spans.sort()
    return any(later[0] < earlier[1] for earlier, later in itertools.pairwise(spans))


def _ours(
    lab: Lab, root: Path, cuts: Sequence[Cut], chance: random.Random
) -> tuple[list[float | None], int, float | None]:
    recipe = root / "recipe.py"
    recipe.write_text(RECIPE)
    options = ["--recipe", str(recipe), "--batch", "20", "--steps", "1000000", "--eval-every", "0"]
    run = trainer(lab, root / "ours", [*options, "--checkpoint-every", "25", "--log-every", "1"], LEAST)
    after: list[float | None] = []
    doubles = 0
    wait(lambda: run.trains(0.0, HOSTS), START_S, run)
    for number, cut in enumerate(cuts):
        time.sleep(chance.uniform(0.3, 1.5))
        with _cut(lab, cut) as began:
            trained = wait(lambda: run.trains(began, LEAST), PATIENCE_S)
            time.sleep(3.0)
            trained = run.trains(began, LEAST)
        after.append(trained[0] - began if trained else None)
        double = both(run.lives(), began)
        doubles += double
        names = "+".join(str(place + 1) for place in sorted(trained[1])) if trained else "nobody"
        say(f"cut {number + 1}: {cut.words}: {names} trained on" + (f" after {after[-1]:.1f} s" if trained else ""))
        healed = time.time()

        def whole() -> bool:
            for place in range(HOSTS):
                run.start(place)
            return run.trains(healed, HOSTS) is not None  # noqa: B023

        if double or not wait(whole, 60.0):
            say(f"stopped: {'both sides trained on' if double else 'not all five train again'}\n{run.last_words()}")
            break
    return after, doubles, _alone(lab, run)


def _alone(lab: Lab, run: Nodes) -> float | None:
    """Seconds until the smaller side ends itself where nobody mends the cut; None if it does not."""
    here, there = range(LEAST), range(LEAST, HOSTS)
    cut = Cut(frozenset((a, b) for side, other in ((here, there), (there, here)) for a in side for b in other), "")
    with _cut(lab, cut) as began:
        return time.time() - began if wait(lambda: run.ended(set(there)), 60.0) else None


@contextmanager
def _cut(lab: Lab, cut: Cut) -> Iterator[float]:
    """These links drop everything inside of the block; gives when that began."""
    began = time.time()
    for source, target in sorted(cut.dropped):
        lab.wire_drops(lab.hosts[source], lab.hosts[target])
    try:
        yield began
    finally:
        lab.on_switch("ebtables", "-F", "FORWARD")


def _rival(lab: Lab, root: Path, cut: Cut) -> float | None:
    """Seconds until three hosts of torchrun's train on; None if they do not."""
    at = f"{lab.hosts[0].address}:{PORT}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", f"{LEAST}:{HOSTS}", "--max-restarts", "9"]
    command += ["--rdzv-backend", "c10d", "--rdzv-endpoint", at, "--rdzv-id", root.name, "-m", "benchmarks.rivals.bare"]
    command += ["--steps", "1000000"]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(HOME)}
    run = Nodes(lab, root, command, [environment] * HOSTS)

    def first(since: float) -> float | None:
        lines = [line for place in range(HOSTS) for line in nodes.lines(run.folder(place) / "logs" / "node.log")]
        return min((line["t"] for line in lines if line["t"] > since and line["step"] == 1), default=None)

    wait(lambda: first(0.0), START_S, run)
    time.sleep(2.0)
    with _cut(lab, cut) as began:
        trained = wait(lambda: first(began), RIVAL_S)
    lab.stop()
    say(f"torchrun, {cut.words}: " + (f"trained on after {trained - began:.1f} s" if trained else "never"))
    return trained - began if trained else None


if __name__ == "__main__":
    alone(measure, __doc__)
