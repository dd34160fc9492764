"""Drills with processes on this machine: a rank, or everything, is killed (SIGKILL)."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from benchmarks import nodes
from benchmarks.drills import Hit, first_step, hit_often, last_of, options, rows
from benchmarks.figure import Row, result, say
from benchmarks.nodes import in_time
from benchmarks.venv import HOME
from gpu_check.nodes import Run
from gpu_check.weights import differences
from muster.checkpoint import store
from muster.files import read_lines

WORLD, HUNG_S = 3, 30.0
STEPS, MOST_KILLS = 300, 4  # after five starts in a row without a step the trainer gives up, as it should


def measure_rank(quick: bool) -> dict[str, Any]:
    """Kill a rank of three repeatedly in one run with 10 MB of state, and measure until all ranks make steps."""
    kills, draw = 3 if quick else 20, random.Random(0)
    recipe = str(HOME / "benchmarks/drills/ten_megabytes.py")
    with nodes.scratch() as scratch, nodes.ours(scratch / "ours", WORLD, options(recipe, 50)) as run:
        run.wait(lambda: _all_step(run, 0.0), "the first steps", 60.0)
        ours = hit_often(kills, lambda _: _kill_rank(run, draw))
    return result(rows("kill -9 of a rank", ours, kills, 1.0), ["torch's import included, 10 MB of state"])


def _kill_rank(run: Run, draw: random.Random) -> Hit | None:
    time.sleep(draw.uniform(0.0, 0.5))  # so that some kills hit while a checkpoint is being written
    doomed = draw.randrange(WORLD)
    os.kill(run.events(doomed, "started")[-1]["pid"], signal.SIGKILL)
    began = time.time()
    after = in_time(run, lambda: _all_step(run, began), HUNG_S)
    if not after:
        say(run.last_words())
        return None
    plan = next(event for event in run.events(0, "plan") if event["t"] > began)
    others = [event for rank in {*range(WORLD)} - {doomed} for event in run.events(rank, "step")]
    return Hit(after - began, max(event["step"] for event in others if event["t"] < plan["t"]) - plan["start_step"])


def _all_step(run: Run, since: float) -> float | None:
    return last_of(first_step(run.events(rank), since) for rank in range(WORLD))


@dataclass(frozen=True)
class Side:
    """A kind of run that is killed and resumed.

    How it starts, whether its checkpoint can be read, and its final weights.
    """

    name: str
    start: Callable[[Path, int], Run]
    readable: Callable[[Path], bool | None]
    weights: Callable[[Path], Any]


@dataclass
class Tally:
    """Counts of kills: all, those that left a checkpoint, or an unreadable one, and those in bit-identical runs."""

    kills: int = 0
    with_checkpoint: int = 0
    unreadable: int = 0
    identical: int = 0


def measure_all(quick: bool) -> dict[str, Any]:
    """Kill every process of a run of two nodes at a random moment, then resume it: are the final weights the same?"""
    ours, rival = Side("ours", _start, _is_readable, _weights), Side("rival", _start_rival, _snapshot, _final)
    trials, rival_trials = (3, 1) if quick else (20, 4)
    draw = random.Random(0)
    with nodes.scratch() as scratch:
        mine, theirs = _tally(scratch, ours, trials, draw), _tally(scratch, rival, rival_trials, draw)
    found = [
        Row("bit-identical after kill -9 of everything and resume", f"{mine.identical} of {mine.kills}",
            f"DDP tutorial {theirs.identical} of {theirs.kills}", target=f"{trials} of {trials}",
            met=mine.identical == trials),
        Row("... newest usable checkpoint unreadable", f"{mine.unreadable} of {mine.with_checkpoint}",
            f"DDP tutorial {theirs.unreadable} of {theirs.with_checkpoint}", target="0", met=not mine.unreadable),
    ]  # fmt: skip
    return result(found, [f"{STEPS} steps of digits; a checkpoint every 10, the tutorial's every epoch of 14"])


def _tally(scratch: Path, side: Side, trials: int, draw: random.Random) -> Tally:
    """Make runs, each killed four times at most, until there were `trials` kills."""
    tally, reference = Tally(), scratch / f"{side.name}-calm"
    with side.start(reference, 1) as run:
        run.wait(lambda: _starts(run), "its first step", 60.0)
        met = time.monotonic()
        run.finish(120.0)
        lasted = time.monotonic() - met
    expected = side.weights(reference)
    for number in itertools.count():
        if tally.kills >= trials:
            break
        folder, before = scratch / f"{side.name}-{number}", tally.kills
        ended = _kill_until_done(folder, side, min(MOST_KILLS, trials - tally.kills), lasted, draw, tally)
        same = ended and not differences(side.weights(folder), expected)
        tally.identical += same * (tally.kills - before)
        say(f"{side.name} {tally.kills}/{trials}: {tally.kills - before} kills in this run, identical {same}")
    return tally


def _kill_until_done(folder: Path, side: Side, most: int, lasted: float, draw: random.Random, tally: Tally) -> bool:
    """Kill and resume one run `most` times, then let it end by itself; returns whether it reached its end."""
    for kills in range(most + 1):
        run = side.start(folder, kills + 1)
        before = _starts(run)
        with run:
            if not in_time(run, lambda: _starts(run) > before or None not in run.codes(), 60.0):  # noqa: B023
                say(f"the resumed run does not start\n{run.last_words()[-600:]}")
                break
            if kills < most:
                time.sleep(draw.uniform(0.0, lasted))
            if kills == most or None not in run.codes():
                in_time(run, lambda: None not in run.codes() or _gave_up(run), 60.0)  # noqa: B023
                break
            run.kill()
        tally.kills += 1
        state = side.readable(folder)
        tally.with_checkpoint += state is not None
        tally.unreadable += state is False
    return (folder / "final.pt").exists() or (folder / "checkpoints" / f"step-{STEPS:08d}").is_dir()


def _gave_up(run: Run) -> bool:
    """Whether the rival cannot continue: torchrun would try an unreadable snapshot a hundred times."""
    return run.logs().count("Traceback") > 4


def _starts(run: Run) -> int:
    """How often training has started: `started` events of Muster's ranks, or the rival's console lines."""
    return len(run.events(0, "started")) + len(run.console_lines())


def _start(folder: Path, start: int) -> Run:
    return nodes.ours(folder, 2, ["--steps", str(STEPS), "--eval-every", "0", "--checkpoint-every", "10"], start)


def _start_rival(folder: Path, start: int) -> Run:
    return nodes.rival(folder, 2, "benchmarks.rivals.snapshot", ["--steps", str(STEPS), "--folder", str(folder)], start)


def _is_readable(folder: Path) -> bool | None:
    """None if no checkpoint was written yet; else whether the newest one can be verified."""
    usable, damaged = store.newest_usable(folder / "checkpoints")
    announced = any(event["kind"] == "checkpoint" for event in read_lines(folder / "ranks" / "rank-0.jsonl"))
    return usable is not None and not damaged if announced or usable or damaged else None


def _snapshot(folder: Path) -> bool | None:
    if not (folder / "snapshot.pt").exists():
        return None
    try:
        torch.load(folder / "snapshot.pt")
    except Exception:  # whatever the error is, the tutorial's loop cannot continue from it
        return False
    return True


def _weights(folder: Path) -> Any:
    state, manifest = store.load(folder / "checkpoints" / f"step-{STEPS:08d}")
    assert manifest.step == STEPS
    return {name: state[name] for name in ("model", "optimizer")}


def _final(folder: Path) -> Any:
    return torch.load(folder / "final.pt")
