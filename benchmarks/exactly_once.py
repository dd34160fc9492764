"""Samples repeated or missed when a run stops mid-epoch and goes on, at world size 1, 2, 3, 4 from any of these.

    python -m benchmarks.exactly_once [--quick]

The epoch has 120 samples in batches of 12, which every world size divides. Each run is stopped after four or
five batches and resumed to the epoch's end; what each rank's optimizer really stepped on is counted. Ours is the whole
trainer with a recipe whose samples are numbers, stopped by SIGTERM. Ranks are forked from one process that has
imported torch, so that the 60 runs take a minute.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.ranks import run_ranks
from benchmarks.rivals.resume import EPOCH, accelerate_rank, torchdata_rank

RECIPE = Path(__file__).with_name("counted_recipe.py")
Phase = Callable[[Path, int, int | None], None]


def measure(quick: bool) -> dict[str, Any]:
    """For each contender, samples repeated and missed over all pairs of world sizes."""
    worlds = (1, 3) if quick else (1, 2, 3, 4)
    contenders: dict[str, Phase] = {
        "Muster": _ours,
        "Accelerate": lambda folder, world, before: run_ranks(
            world, folder / "log", accelerate_rank, str(folder), before
        ),
        "torchdata": lambda folder, world, before: run_ranks(
            world, folder / "log", torchdata_rank, str(folder), before
        ),
    }
    counts: dict[str, tuple[int, int, int]] = {}
    with nodes.scratch() as scratch:
        for name, phase in contenders.items():
            counts[name] = _count(scratch / name, phase, worlds)
            say(f"{name}: {counts[name][0]} repeated, {counts[name][1]} missed, {counts[name][2]} pairs exact")
    pairs = len(worlds) ** 2
    ours = counts.pop("Muster")
    rows = [
        Row(
            f"samples repeated / missed on resume, against {name}",
            f"{ours[0]} / {ours[1]}",
            f"{theirs[0]} / {theirs[1]}",
            target="0 / 0",
            met=ours[:2] == (0, 0),
        )
        for name, theirs in counts.items()
    ]
    exact = ", ".join(f"{name} {counted[2]}" for name, counted in {"Muster": ours, **counts}.items())
    return result(rows, [f"{pairs} pairs of world sizes, {EPOCH} samples each; pairs without a mistake: {exact}"])


def _count(folder: Path, phase: Phase, worlds: tuple[int, ...]) -> tuple[int, int, int]:
    """(repeated, missed, pairs without either), over every pair of world sizes."""
    repeated = missed = exact = 0
    for before in worlds:
        stopped = folder / f"{before}"
        stopped.mkdir(parents=True)
        phase(stopped, before, None)
        first = _seen(stopped)
        assert 0 < sum(first.values()) < EPOCH, f"{folder.name}: the first run took {sum(first.values())} samples"
        for after in worlds:
            resumed = folder / f"{before}-{after}"
            resumed.mkdir()
            (resumed / "from").symlink_to(stopped)
            phase(resumed, after, before)
            seen = first + _seen(resumed)
            assert all(0 <= number < EPOCH for number in seen)
            too_many = sum(count - 1 for count in seen.values())
            repeated, missed = repeated + too_many, missed + EPOCH - len(seen)
            exact += not too_many and len(seen) == EPOCH
    return repeated, missed, exact


def _seen(folder: Path) -> Counter[int]:
    """How often each sample was trained on, over all ranks."""
    lines = [line for path in folder.glob("seen-*.jsonl") for line in path.read_text().splitlines()]
    return Counter(number for line in lines for number in json.loads(line))


def _ours(folder: Path, world: int, before: int | None) -> None:
    arguments = ["--recipe", str(RECIPE), "--steps", str(EPOCH // 12), "--batch", "12"]
    if before is not None:
        arguments += ["--resume", str(folder / "from" / "run")]
    run_ranks(world, folder / "log", _trainer_rank, str(folder), tuple(arguments), before is None)


def _trainer_rank(folder: str, arguments: tuple[str, ...], stop: bool) -> None:
    """One rank of the trainer in this process; the recipe reads from the environment where to count, when to stop."""
    from trainer.__main__ import main

    os.environ |= {"MUSTER_RUN_DIR": f"{folder}/run", "COUNTED_FOLDER": folder, "COUNTED_STOP": str(int(stop))}
    code = main(arguments)
    if code != (75 if stop else 0):
        raise SystemExit(f"the trainer ended with {code}")


if __name__ == "__main__":
    alone(measure, __doc__)
