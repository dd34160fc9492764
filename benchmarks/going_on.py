"""A node of three is killed (`kill -9` of all its processes), the first one included: when do the others train on?

    python -m benchmarks.going_on [--quick]

Ours is the trainer with --min-nodes 2: in one run, nodes drawn at random are killed one after the other, and come back.
What each rank was given to learn is written down: of the whole run each sample must count as often as in one without
faults. The rival is the bare DDP loop under `torchrun --nnodes 2:3` (c10d, a new store for each attempt), which saves
nothing; each kill meets a run of its own, and one after which nobody steps within 90 s counts as never.
"""

from __future__ import annotations

import random
import secrets
import textwrap
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from deploy.local import machine
from deploy.local.processes import kill, labelled
from muster.data import StreamSampler

NODES, LEAST, LIMIT_S, NEVER_S = 3, 2, 3.0, 90.0
SAMPLES, BATCH, EVERY = 203, 24, 25
RECIPE = f"""
import os, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    return nn.Linear(1, 1)

def datasets(data):
    return TensorDataset(torch.arange({SAMPLES})), TensorDataset(torch.arange(4))

def loss(model, batch):
    if torch.is_grad_enabled():
        with open(f"{{os.environ['MUSTER_RUN_DIR']}}/seen-{{os.environ['RANK']}}-{{os.getpid()}}", "a") as file:
            file.write(" ".join(map(str, batch[0].tolist())) + "\\n")
        time.sleep(0.02)
    return model(batch[0].float()[:, None]).square().mean()
"""


def measure(quick: bool) -> dict[str, Any]:
    """Of each side: the seconds after each kill; of ours also the steps done again, and the samples."""
    kills, rival_kills = (3, 1) if quick else (20, 3)
    draw = random.Random(0)
    with nodes.scratch() as scratch:
        seconds, again, wrong = _ours(scratch, kills, draw)
        theirs = [_rival(scratch, number, draw) for number in range(rival_kills)]
    lived = [each for each in theirs if each is not None]
    rows = [
        Row(
            "others train on after the loss of a node, the first included",
            f"{len(seconds)} of {kills}",
            f"torchrun {len(lived)} of {rival_kills}",
            target=f"{kills} of {kills}",
            met=len(seconds) == kills,
        ),
        Row(
            "... after seconds",
            f"{spread(seconds)} s" if seconds else "never",
            f"torchrun {spread(lived)} s" if lived else "torchrun never",
            target=f"<= {LIMIT_S:.0f} s each",
            met=len(seconds) == kills and max(seconds) <= LIMIT_S,
        ),
        Row(
            f"steps done again, of {EVERY} between two checkpoints",
            spread(again, ".0f") if again else "none",
            "torchrun: all from step 0",
            target=f"<= {EVERY}, and those of a checkpoint that is being written",
            met=bool(again) and max(again) <= 2 * EVERY,
        ),
        Row(
            "samples repeated / missed in the weights", f"{wrong[0]} / {wrong[1]}", target="0 / 0", met=wrong == (0, 0)
        ),
    ]
    return result(rows, [f"{NODES} nodes as processes of this machine; a killed one comes back, and takes part again"])


def _ours(scratch: Path, kills: int, draw: random.Random) -> tuple[list[float], list[int], tuple[int, int]]:
    folder, recipe = nodes.run_folder(scratch, "ours"), scratch / "counts.py"
    recipe.write_text(textwrap.dedent(RECIPE))
    options = ["--recipe", str(recipe), "--batch", str(BATCH), "--steps", "1000000", "--eval-every", "0"]
    options += ["--checkpoint-every", str(EVERY), "--keep", "1000", "--log-every", "1"]
    seconds: list[float] = []
    again: list[int] = []
    with nodes.group(folder, NODES - 1, options, LEAST, machine.doors(NODES), secrets.token_hex(16)) as run:
        run.wait(lambda: _stepped(run, 0.0, NODES))
        for _ in range(kills):
            time.sleep(draw.uniform(0.5, 2.0))
            name, reached = draw.choice(run.names), _step(run)
            began = _kill(folder, name)
            after = run.wait_or_none(lambda: _stepped(run, began, LEAST), NEVER_S)  # noqa: B023
            if not after:
                say(f"{name}: not training again after {NEVER_S:.0f} s\n{run.last_words()}")
                break
            seconds.append(after - began)
            again.append(max(0, reached - run_starts(run)[-1]))
            say(f"kill of {name}: the others step after {seconds[-1]:.2f} s, {again[-1]} steps again")
            back = time.time()
            run.bring_back()
            run.wait(lambda: _stepped(run, back, NODES), 90.0)  # noqa: B023
        run.ask()
        run.wait(lambda: None not in run.codes())
        wrong = wrong_samples(run, NODES)
    return seconds, again, wrong


def run_starts(run: nodes.Run) -> list[int]:
    """The step at which each start of the ranks began."""
    return [event["start_step"] for event in run.events() if event["kind"] == "plan"]


def wrong_samples(run: nodes.Run, most: int) -> tuple[int, int]:
    """Samples that are more often, and less often, in the last weights than in a run without faults.

    `most`: so many nodes train where none is lost.
    """
    plans = [event for event in run.events() if event["kind"] == "plan"]
    last = [event["step"] for event in run.events() if event["kind"] == "checkpoint"][-1]
    taken: Counter[int] = Counter()
    for number, plan in enumerate(plans):
        end = plans[number + 1]["start_step"] if number + 1 < len(plans) else last
        for rank in range(most):
            started = [event for event in run.events(rank) if event["kind"] == "started" and event["t"] <= plan["t"]]
            before = plans[number - 1]["t"] if number else 0.0
            for life in [event for event in started if event["t"] > before][-1:]:
                rows = (run.folder / f"seen-{rank}-{life['pid']}").read_text().splitlines()
                for row in rows[1 : 1 + end - plan["start_step"]]:  # the first settles DDP's buckets
                    taken.update(map(int, row.split()))
    sampler = StreamSampler(SAMPLES, batch=BATCH, micro_batches=1, world=1, rank=0, seed=0, consumed=0)
    expected = Counter(sampler.indices(0, BATCH * last))
    return (taken - expected).total(), (expected - taken).total()


def _rival(scratch: Path, number: int, draw: random.Random) -> float | None:
    folder = nodes.run_folder(scratch, f"rival-{number}")
    run = nodes.rival(folder, NODES - 1, "benchmarks.rivals.bare", ["--steps", "1000000"])
    elastic = {"PET_NNODES": "2:3", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
    run.specs = [replace(each, environment={**each.environment, **elastic}) for each in run.specs]
    with run:
        run.wait(run.console_lines)
        time.sleep(draw.uniform(0.5, 2.0))
        name = run.names[number % NODES]
        began = _kill(folder, name)

        def stepped() -> float | None:
            return next((line["t"] for line in run.console_lines() if line["t"] > began and line["step"] == 1), None)

        after = run.wait_or_none(stepped, NEVER_S)
    say(f"torchrun, kill of {name}: " + (f"after {after - began:.2f} s" if after else "never"))
    return after - began if after else None


def _kill(folder: Path, name: str) -> float:
    began = time.time()
    kill(labelled(folder, name))
    return began


def _step(run: nodes.Run) -> int:
    return max(event["step"] for event in run.events() if event["kind"] == "step")


def _stepped(run: nodes.Run, since: float, ranks: int) -> float | None:
    """When the last of so many ranks ended the first step of a life that began since then."""
    firsts: list[float] = []
    for rank in range(ranks):
        events = [event for event in run.events(rank) if event["t"] > since]
        started = next((i for i, event in enumerate(events) if event["kind"] == "started"), len(events))
        firsts += [event["t"] for event in events[started:] if event["kind"] == "step"][:1]
    return max(firsts) if len(firsts) == ranks else None


if __name__ == "__main__":
    alone(measure, __doc__)
