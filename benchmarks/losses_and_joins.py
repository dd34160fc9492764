"""One run in which nodes are lost and come back sixteen times each, at random: is its end that of an undisturbed one?

    python -m benchmarks.losses_and_joins [--quick]

Five nodes, of which three train on (--min-nodes 3), as processes of this machine: while at most two are lost, one more
is killed (`kill -9` of all its processes) or one comes back, as drawn. Then the run is stopped. What each rank was
given to learn is written down. The same run without losses does as many steps. The recipe computes in float64, where a
sum of gradients in another order differs by 1e-16 of it: after thousands of such steps the weights may differ by 1e-9.
A loss is told in float32, which has seven digits. A batch that is learnt twice changes either by far more, and how much
the loss changes from step to step is measured, too.
"""

from __future__ import annotations

import math
import random
import secrets
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.going_on import BATCH, SAMPLES, run_starts, wrong_samples
from deploy.local import machine
from deploy.local.processes import kill, labelled
from muster.checkpoint import store

NODES, LEAST = 5, 3
BOUND, LOSS_BOUND = 1e-9, 1e-6
LIMIT_S, EVERY = 60.0, 25
RECIPE = f"""
import math, os, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    return nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).double()

def datasets(data):
    return TensorDataset(torch.arange({SAMPLES})), TensorDataset(torch.arange(4))

def loss(model, batch):
    if torch.is_grad_enabled():
        with open(f"{{os.environ['MUSTER_RUN_DIR']}}/seen-{{os.environ['RANK']}}-{{os.getpid()}}", "a") as file:
            file.write(" ".join(map(str, batch[0].tolist())) + "\\n")
        time.sleep(PACE)
    x = batch[0].double()
    inputs = torch.stack([torch.sin(x * f) for f in (0.1, 0.7, 1.3, 2.1)], 1)
    return (model(inputs)[:, 0] - torch.cos(x * 0.37)).square().mean()
"""


def measure(quick: bool) -> dict[str, Any]:
    """Of the disturbed run: the seconds lost, the samples, and how far its losses are from those of the other one."""
    losses = 4 if quick else 16
    with nodes.scratch() as scratch:
        folder = nodes.run_folder(scratch, "disturbed")
        with _start(folder, 0.02, EVERY) as run:
            seconds = _disturb(run, losses, random.Random(16))
            run.ask()
            run.wait(lambda: None not in run.codes())
            last = max(event["step"] for event in run.events() if event["kind"] == "checkpoint")
            starts, wrong = len(run_starts(run)), wrong_samples(run, NODES)
        calm = nodes.run_folder(scratch, "calm")
        with _start(calm, 0.0, last) as other:
            other.wait(lambda: any(event["kind"] == "checkpoint" for event in other.events()), 240.0)
        far, shift, unwritten = _far(folder, calm, last)
        weights = _weights_far(folder, calm, last)
    rows = [
        Row(
            f"nodes lost and back, of {NODES}, in one run",
            f"{len(seconds)} and {len(seconds)}",
            target=f"{losses} and {losses}",
            met=len(seconds) == losses,
        ),
        Row(
            "... samples repeated / missed in the weights",
            f"{wrong[0]} / {wrong[1]}",
            target="0 / 0",
            met=wrong == (0, 0),
        ),
        Row(
            f"... the weights after {last} steps differ from those of a run without losses by at most",
            f"{weights:.1e} of the largest",
            target=f"<= {BOUND:.0e}",
            met=weights <= BOUND,
        ),
        Row(
            "... the losses of all steps that have a line, in float32, by at most",
            f"{far:.1e} of them",
            target=f"<= {LOSS_BOUND:.0e}",
            met=far <= LOSS_BOUND,
        ),
        Row("... steps whose line in metrics.jsonl went with a killed rank", f"{unwritten} of {last}"),
        Row("... seconds of training lost with a node, in each loss", f"{spread(seconds)} s" if seconds else "none"),
    ]
    return result(
        rows,
        [
            f"{starts} starts of the ranks; {sum(seconds):.0f} s lost in all; from step to step the loss changes "
            f"by {shift:.1e} of it in the median: a batch learnt twice would show",
            f"{NODES} nodes as processes of this machine, --min-nodes {LEAST}, float64",
        ],
    )


def _start(folder: Path, pace: float, every: int) -> nodes.Run:
    recipe = folder / "counts.py"
    recipe.write_text(RECIPE.replace("PACE", str(pace)))
    options = ["--recipe", str(recipe), "--batch", str(BATCH), "--steps", "1000000", "--eval-every", "0"]
    options += ["--checkpoint-every", str(every), "--keep", "1000", "--log-every", "1"]
    return nodes.group(folder, NODES - 1, options, LEAST, machine.doors(NODES), secrets.token_hex(16))


def _disturb(run: nodes.Run, losses: int, draw: random.Random) -> list[float]:
    """Lose nodes and bring them back; returns the seconds until the others stepped again after each loss."""
    seconds: list[float] = []
    away: list[str] = []
    run.wait(lambda: _steps_of(run, 0.0) == NODES, 120.0)
    while len(seconds) < losses or away:
        time.sleep(draw.uniform(0.3, 1.5))
        if len(seconds) < losses and len(away) < NODES - LEAST and (not away or draw.random() < 0.5):
            name = draw.choice([each for each in run.names if each not in away])
            away.append(name)
            began = time.time()
            kill(labelled(run.folder, name))
            run.wait(lambda: _steps_of(run, began) >= NODES - len(away), LIMIT_S)  # noqa: B023
            seconds.append(time.time() - began)
            say(f"loss {len(seconds)}: {name}; {NODES - len(away)} nodes step after {seconds[-1]:.1f} s")
        else:
            name = away.pop(draw.randrange(len(away)))
            began = time.time()
            run.bring_back(name)
            run.wait(lambda: _steps_of(run, began) >= NODES - len(away), LIMIT_S)  # noqa: B023
            say(f"{name} is back: {NODES - len(away)} nodes step after {time.time() - began:.1f} s")
    return seconds


def _steps_of(run: nodes.Run, since: float) -> int:
    """How many ranks have done a step in a life that began since then."""
    count = 0
    for rank in range(NODES):
        events = [event for event in run.events(rank) if event["t"] > since]
        started = next((i for i, event in enumerate(events) if event["kind"] == "started"), len(events))
        count += any(event["kind"] == "step" for event in events[started:])
    return count


def _far(disturbed: Path, calm: Path, last: int) -> tuple[float, float, int]:
    """How far the losses are from each other, as a part of them; the median change from a step to the next; and how
    many steps no line has: a rank that is killed behind a finished step, before it wrote its line, takes that along.
    """
    first, other = (
        {line["step"]: line["loss"] for line in nodes.lines(each / "metrics.jsonl") if "loss" in line}
        for each in (disturbed, calm)
    )
    steps = range(1, last + 1)
    far = max(abs(first[step] - other[step]) / other[step] for step in steps if step in first)
    changes = sorted(abs(math.log(other[step + 1] / other[step])) for step in steps[:-1])
    return far, changes[len(changes) // 2], sum(step not in first for step in steps)


def _weights_far(disturbed: Path, calm: Path, last: int) -> float:
    """The largest difference of two weights after the last step, as a part of the largest weight."""
    first, other = (store.load(each / f"checkpoints/step-{last:08d}")[0]["model"] for each in (disturbed, calm))
    largest = max(float(tensor.abs().max()) for tensor in other.values())
    return max(float((first[name] - other[name]).abs().max()) for name in other) / largest


if __name__ == "__main__":
    alone(measure, __doc__)
