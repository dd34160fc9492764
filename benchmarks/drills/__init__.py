"""A run is hit repeatedly: do the others continue to train, how soon, and what is lost?

    python -m benchmarks.drills rank     kill -9 of a rank                         processes of this machine
    python -m benchmarks.drills all      kill -9 of everything, then resume        processes of this machine
    python -m benchmarks.drills cut      five hosts are cut off from each other    network namespaces, as root
    python -m benchmarks.drills host     a host of three loses its power           a rack for this drill

`--quick` makes fewer hits. A seed determines what is hit, and when. If nobody trains again within a limit after a hit,
the result is never, and the drill ends. The rival of `host` is torchrun with its defaults and the same number of
restarts; the rival of `all` is the checkpoint of PyTorch's DDP tutorial.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.figure import Measure, Row, say, spread

# The module of each drill.
DRILLS = {"rank": "here", "all": "here", "cut": "spaces", "host": "power"}
NEVER_S = 90.0
SAMPLES, BATCH, EVERY = 203, 24, 25
# Each rank records the address where the ranks of its start meet.
RECIPE = f"""
import os, time
import torch
from torch import nn
from torch.utils.data import TensorDataset

def model():
    with open(os.environ["MUSTER_RUN_DIR"] + "/meets", "a") as file:
        file.write(f"{{os.getpid()}} {{os.environ['MASTER_ADDR']}}:{{os.environ['MASTER_PORT']}}\\n")
    return nn.Linear(1, 1)

def datasets(data):
    return TensorDataset(torch.arange({SAMPLES})), TensorDataset(torch.arange(4))

def loss(model, batch):
    if torch.is_grad_enabled():
        time.sleep(0.02)
    return model(batch[0].float()[:, None]).square().mean()
"""
Events = Sequence[dict[str, Any]]


@dataclass(frozen=True)
class Hit:
    """The result of one hit: after how many seconds the others trained again, and how many steps were repeated."""

    seconds: float
    again: int = 0


def measure(drill: str) -> Measure:
    """The function that measures a drill."""
    found: Measure = getattr(importlib.import_module(f"benchmarks.drills.{DRILLS[drill]}"), f"measure_{drill}")
    return found


def options(recipe: str, every: int = EVERY) -> list[str]:
    """The trainer's options for a run that only the drill ends."""
    more = ["--steps", "1000000", "--eval-every", "0", "--checkpoint-every", str(every), "--log-every", "1"]
    return ["--recipe", recipe, *more]


def hit_often(times: int, once: Callable[[int], Hit | None], who: str = "") -> list[Hit]:
    """Hit a run `times` times; stops after the first hit from which it does not recover."""
    done: list[Hit] = []
    for number in range(times):
        hit = once(number)
        say(f"{who} hit {number + 1}: " + (f"after {hit.seconds:.2f} s, {hit.again} steps again" if hit else "never"))
        if not hit:
            break
        done.append(hit)
    return done


def rows(what: str, ours: Sequence[Hit], times: int, limit_s: float, theirs: Sequence[Hit | None] = ()) -> list[Row]:
    """How often, how soon, and how many steps were repeated; compared with torchrun if it was hit, too."""
    lived = [each for each in theirs if each]
    seconds, all_back = [each.seconds for each in ours], len(ours) == times

    def beside(values: Sequence[float], form: str, unit: str = "") -> str:
        return f"torchrun {spread(values, form)}{unit}" if values else "torchrun never" if theirs else ""

    return [
        Row(f"train on after {what}", f"{len(ours)} of {times}",
            f"torchrun {len(lived)} of {len(theirs)}" if theirs else "", target=f"{times} of {times}", met=all_back),
        Row("... after seconds", f"{spread(seconds)} s" if seconds else "never",
            beside([each.seconds for each in lived], ".2f", " s"),
            target=f"<= {limit_s:.0f} s each", met=all_back and max(seconds) <= limit_s),
        Row("... steps done again", spread([each.again for each in ours], ".0f") if ours else "all",
            beside([each.again for each in lived], ".0f")),
    ]  # fmt: skip


def first_step(events: Events, since: float) -> float | None:
    """When a rank did the first step of a life that began after `since`.

    A step that was already running does not count.
    """
    new = [event for event in events if event["t"] > since]
    started = next((place for place, event in enumerate(new) if event["kind"] == "started"), len(new))
    return next((event["t"] for event in new[started:] if event["kind"] == "step"), None)


def last_of(times: Iterable[float | None]) -> float | None:
    """The latest time; None if one is missing."""
    known = list(times)
    return max(each for each in known if each) if known and all(known) else None
