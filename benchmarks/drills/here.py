"""Drills with processes of this machine: a rank, a node, everything is killed (SIGKILL)."""

from __future__ import annotations

import itertools
import random
import secrets
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks import nodes
from benchmarks.drills import (
    BATCH,
    NEVER_S,
    RECIPE,
    Hit,
    expected_samples,
    first_step,
    hit_often,
    last_of,
    options,
    rows,
)
from benchmarks.figure import Row, result, say
from benchmarks.venv import HOME
from deploy.local import machine
from deploy.local.processes import kill, labelled
from muster.checkpoint import store
from muster.files import read_lines

WORLD, LEAST, HUNG_S = 3, 2, 30.0
BARE = ("benchmarks.rivals.bare", ["--steps", "1000000"])
STEPS, MOST_KILLS = 300, 4  # with five starts in a row without a step the trainer gives up, as it should


def measure_rank(quick: bool) -> dict[str, Any]:
    """A rank of three is killed in one run with 10 MB of state: until all step again."""
    kills, rival_kills = (3, 1) if quick else (20, 3)
    draw = random.Random(0)
    with nodes.scratch() as scratch:
        recipe = str(HOME / "benchmarks/drills/ten_megabytes.py")
        with nodes.ours(nodes.run_folder(scratch, "ours"), WORLD - 1, options(recipe, 50)) as run:
            run.wait(lambda: last_of(first_step(run.events(rank), 0.0) for rank in range(WORLD)))
            ours = hit_often(kills, lambda _: _kill_rank(run, draw))
        theirs = [_rival(scratch / f"rival-{number}", number, draw, WORLD) for number in range(rival_kills)]
    return result(rows("kill -9 of a rank", ours, kills, theirs, 1.0), ["torch's import included, 10 MB of state"])


def _kill_rank(run: nodes.Run, draw: random.Random) -> Hit | None:
    time.sleep(draw.uniform(0.0, 0.5))  # some kills shall meet a checkpoint being written
    doomed = draw.randrange(WORLD)
    psutil.Process([event["pid"] for event in run.events(doomed) if event["kind"] == "started"][-1]).kill()
    began = time.time()
    after = run.wait_or_none(lambda: last_of(first_step(run.events(rank), began) for rank in range(WORLD)), HUNG_S)
    if not after:
        say(run.last_words())
        return None
    plan = next(event for event in run.events() if event["t"] > began and event["kind"] == "plan")
    others = [event for rank in {*range(WORLD)} - {doomed} for event in run.events(rank)]
    reached = max(event["step"] for event in others if event["kind"] == "step" and event["t"] < plan["t"])
    return Hit(after - began, reached - plan["start_step"])


def measure_node(quick: bool) -> dict[str, Any]:
    """A node of three (--min-nodes 2) is killed, the first included, and comes back; each sample counts once."""
    kills, rival_kills = (3, 1) if quick else (20, 3)
    draw = random.Random(0)
    with nodes.scratch() as scratch:
        recipe = scratch / "counts.py"
        recipe.write_text(RECIPE)
        given = [*options(str(recipe)), "--batch", str(BATCH), "--keep", "1000"]
        folder, key = nodes.run_folder(scratch, "ours"), secrets.token_hex(16)
        with nodes.group(folder, WORLD - 1, given, LEAST, machine.doors(WORLD), key) as run:
            run.wait(lambda: _step_of(run, 0.0, WORLD))
            ours = hit_often(kills, lambda _: _kill_node(run, draw))
            run.ask()
            run.wait(lambda: None not in run.codes())
            wrong = wrong_samples(run)
        theirs = [_rival(scratch / f"rival-{number}", number, draw, LEAST) for number in range(rival_kills)]
    found = rows("the loss of a node of three, the first included", ours, kills, theirs, 3.0)
    samples = f"{wrong[0]} / {wrong[1]}"
    return result(
        [*found, Row("... samples repeated / missed in the weights", samples, "", "", "0 / 0", wrong == (0, 0))]
    )


def _kill_node(run: nodes.Run, draw: random.Random) -> Hit | None:
    time.sleep(draw.uniform(0.5, 2.0))
    name, reached = draw.choice(run.names), max(event["step"] for event in run.events() if event["kind"] == "step")
    began = time.time()
    kill(labelled(run.folder, name))
    after = run.wait_or_none(lambda: _step_of(run, began, LEAST), NEVER_S)
    if not after:
        say(f"{name}\n{run.last_words()}")
        return None
    start = [event["start_step"] for event in run.events() if event["kind"] == "plan"][-1]
    back = time.time()
    run.bring_back()
    run.wait(lambda: _step_of(run, back, WORLD), NEVER_S)
    return Hit(after - began, max(0, reached - start))


def _step_of(run: nodes.Run, since: float, ranks: int) -> float | None:
    return last_of(first_step(run.events(rank), since) for rank in range(ranks))


def wrong_samples(run: nodes.Run) -> tuple[int, int]:
    """Samples that are more often, and less often, in the last weights than in a run without faults."""
    plans = [event for event in run.events() if event["kind"] == "plan"]
    last = [event["step"] for event in run.events() if event["kind"] == "checkpoint"][-1]
    ends = [*(plan["start_step"] for plan in plans[1:]), last]
    taken: Counter[int] = Counter()
    for number, (plan, end) in enumerate(zip(plans, ends, strict=True)):
        before = plans[number - 1]["t"] if number else 0.0
        for rank in range(WORLD):
            lives = [each for each in run.events(rank) if each["kind"] == "started" and before < each["t"] <= plan["t"]]
            for life in lives[-1:]:
                learnt = (run.folder / f"seen-{rank}-{life['pid']}").read_text().splitlines()
                for line in learnt[1 : 1 + end - plan["start_step"]]:  # the first settles DDP's buckets
                    taken.update(map(int, line.split()))
    due = Counter(expected_samples(last))
    return (taken - due).total(), (due - taken).total()


def _rival(folder: Path, number: int, draw: random.Random, left: int) -> Hit | None:
    """The bare loop under torchrun, which loses a rank; or, where fewer are left, a node of an elastic run."""
    run = nodes.rival(nodes.run_folder(folder.parent, folder.name), WORLD - 1, *BARE)
    if left < WORLD:
        elastic = {"PET_NNODES": f"{left}:{WORLD}", "TORCH_DISABLE_SHARE_RDZV_TCP_STORE": "1"}
        run.specs = [replace(each, environment={**each.environment, **elastic}) for each in run.specs]
    with run:
        run.wait(run.console_lines)
        time.sleep(draw.uniform(0.5, 2.0))
        doomed = labelled(run.folder, run.names[number % WORLD] if left < WORLD else "")
        ranks = [process for process in doomed if "RANK" in process.environ()]
        reached, began = max(line["step"] for line in run.console_lines()), time.time()
        kill(doomed if left < WORLD else [draw.choice(ranks)])

        def stepped() -> float | None:
            return next((line["t"] for line in run.console_lines() if line["t"] > began and line["step"] == 1), None)

        after = run.wait_or_none(stepped, HUNG_S if left == WORLD else NEVER_S)
    say("torchrun: " + (f"after {after - began:.2f} s" if after else "never"))
    return Hit(after - began, reached) if after else None


@dataclass(frozen=True)
class Side:
    """A kind of run that is killed and resumed: its start, whether its checkpoint can be read, its last weights."""

    name: str
    start: Callable[[Path, int], nodes.Run]
    readable: Callable[[Path], bool | None]
    weights: Callable[[Path], Any]


@dataclass
class Tally:
    """Kills; how many left a checkpoint, and one that cannot be read; how many are of runs with the same weights."""

    kills: int = 0
    with_checkpoint: int = 0
    unreadable: int = 0
    identical: int = 0


def measure_all(quick: bool) -> dict[str, Any]:
    """Every process of a run of two nodes is killed at a random moment, then it is resumed: the same last weights?"""
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
    """Runs, each killed four times at most, until there were so many kills."""
    tally, reference = Tally(), nodes.run_folder(scratch, f"{side.name}-calm")
    with side.start(reference, 1) as run:
        run.wait(lambda: _starts(reference))
        met = time.monotonic()
        run.finish()
        lasted = time.monotonic() - met
    expected = side.weights(reference)
    for number in itertools.count():
        if tally.kills >= trials:
            break
        folder, before = nodes.run_folder(scratch, f"{side.name}-{number}"), tally.kills
        ended = _kill_until_done(folder, side, min(MOST_KILLS, trials - tally.kills), lasted, draw, tally)
        same = ended and equal(side.weights(folder), expected)
        tally.identical += same * (tally.kills - before)
        say(f"{side.name} {tally.kills}/{trials}: {tally.kills - before} kills in this run, identical {same}")
    return tally


def _kill_until_done(folder: Path, side: Side, most: int, lasted: float, draw: random.Random, tally: Tally) -> bool:
    """Kill and resume one run, `most` times, until it ends by itself; whether it came to its end."""
    for kills in range(most + 1):
        before = _starts(folder)
        with side.start(folder, kills + 1) as run:
            if not run.wait_or_none(lambda: _starts(folder) > before or None not in run.codes(), 60.0):  # noqa: B023
                say(f"the resumed run does not start\n{run.last_words()[-600:]}")
                break
            if kills < most:
                time.sleep(draw.uniform(0.0, lasted))
            if kills == most or None not in run.codes():
                run.wait_or_none(lambda: None not in run.codes() or _gave_up(run), 60.0)
                break
            run.kill_everything()
        tally.kills += 1
        state = side.readable(folder)
        tally.with_checkpoint += state is not None
        tally.unreadable += state is False
    return (folder / "final.pt").exists() or (folder / "checkpoints" / f"step-{STEPS:08d}").is_dir()


def _gave_up(run: nodes.Run) -> bool:
    """torchrun would try a snapshot that cannot be read a hundred times."""
    return sum(log.read_text(errors="replace").count("Traceback") for log in run.folder.glob("logs/*.log")) > 4


def _starts(folder: Path) -> int:
    """How often training has begun: our ranks' `started` events, the rival's lines."""
    begun = [event for event in read_lines(folder / "ranks" / "rank-0.jsonl") if event["kind"] == "started"]
    return len(begun) + len(nodes.console_lines(folder))


def _start(folder: Path, start: int) -> nodes.Run:
    return nodes.ours(folder, 1, ["--steps", str(STEPS), "--eval-every", "0", "--checkpoint-every", "10"], start)


def _start_rival(folder: Path, start: int) -> nodes.Run:
    return nodes.rival(folder, 1, "benchmarks.rivals.snapshot", ["--steps", str(STEPS), "--folder", str(folder)], start)


def _is_readable(folder: Path) -> bool | None:
    """None when no checkpoint was written yet; else whether the newest one verifies."""
    usable, damaged = store.newest_usable(folder / "checkpoints")
    announced = any(event["kind"] == "checkpoint" for event in read_lines(folder / "ranks" / "rank-0.jsonl"))
    return usable is not None and not damaged if announced or usable or damaged else None


def _snapshot(folder: Path) -> bool | None:
    if not (folder / "snapshot.pt").exists():
        return None
    try:
        torch.load(folder / "snapshot.pt")
    except Exception:  # whatever is wrong with it, the tutorial's loop cannot go on from it
        return False
    return True


def _weights(folder: Path) -> Any:
    state, manifest = store.load(folder / "checkpoints" / f"step-{STEPS:08d}")
    assert manifest.step == STEPS
    return {name: state[name] for name in ("model", "optimizer", "scheduler", "position")}


def _final(folder: Path) -> Any:
    return torch.load(folder / "final.pt")


def equal(first: Any, other: Any) -> bool:
    """Bit for bit, through dicts and lists."""
    if isinstance(first, torch.Tensor):
        return isinstance(other, torch.Tensor) and torch.equal(first, other)
    if isinstance(first, dict):
        return (
            isinstance(other, dict) and first.keys() == other.keys() and all(equal(first[k], other[k]) for k in first)
        )
    if isinstance(first, list | tuple):
        return len(first) == len(other) and all(equal(a, b) for a, b in zip(first, other, strict=True))
    return bool(first == other)
