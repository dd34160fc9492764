"""A plain loop with `muster.Training`, beside the same loop as tutorials write it: killed at random, and continued.

    python -m benchmarks.library [--quick]

Each case kills all ranks with SIGKILL at a random step, at world sizes 1 to 4 in turn, and continues a copy at the
same world size (its weights are compared with those of a run that nobody killed, bit by bit) and a copy at another
one (the samples that the final weights have seen are counted, over whole epochs). Then steps a second with the
library and without, in turns inside the same ranks, the same data path, a checkpoint every 500 steps for ours.
"""

from __future__ import annotations

import random
import shutil
import statistics
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.ranks import run_ranks
from benchmarks.rivals import loops

STEPS = 40
Loop = Callable[[str, str, int], None]


def measure(quick: bool) -> dict[str, Any]:
    """Cases of each loop, and the ratio of the speeds."""
    cases, pairs, block = (4, 6, 50) if quick else (20, 60, 80)
    with nodes.scratch() as scratch:
        counts = {loop.__name__: _kills(scratch / loop.__name__, loop, cases) for loop in (loops.ours, loops.by_hand)}
        ratios = _speed(scratch / "speed", pairs, block)
    (same, repeated, missed), theirs = counts["ours"], counts["by_hand"]
    rows = [
        Row(
            "killed and continued: weights to the last bit",
            f"{same} of {cases}",
            f"torch.save by hand {theirs[0]} of {cases}",
            target=f"{cases} of {cases}",
            met=same == cases,
        ),
        Row(
            "samples repeated / missed, at another world size",
            f"{repeated} / {missed}",
            f"torch.save by hand {theirs[1]} / {theirs[2]}",
            target="0 / 0",
            met=(repeated, missed) == (0, 0),
        ),
        Row(
            "steps/s with the library against without",
            f"{pairs} pairs of {block} steps, 2 ranks",
            "",
            f"{spread(ratios, '.3f')}x",
            ">= 0.98x",
            statistics.median(ratios) >= 0.98,
        ),
    ]
    notes = [
        "of ratios the median, in brackets the least and the most; where a loop cannot continue, nothing is counted"
    ]
    return result(rows, notes)


def _kills(scratch: Path, loop: Loop, cases: int) -> tuple[int, int, int]:
    """How many cases end with the weights of an undisturbed run; the samples repeated and missed in all of them."""
    draw, same, repeated, missed = random.Random(0), 0, 0, 0
    for case in range(cases):
        world, other, at = case % 4 + 1, draw.choice([1, 2, 3, 4]), draw.randrange(SAVE, STEPS)
        folder = scratch / str(case)
        whole, cut, elsewhere = folder / "whole", folder / "cut", folder / "elsewhere"
        _train(whole, world, loop)
        _train(cut, world, loop, lambda: _reached(cut, at))  # noqa: B023
        shutil.copytree(cut, elsewhere)
        try:
            _train(cut, world, loop)
            _train(elsewhere, other, loop)
        except RuntimeError as fault:  # the kill has torn its only checkpoint
            say(f"{loop.__name__}, case {case + 1}: cannot continue: {str(fault).splitlines()[-1]}")
            continue
        same += _weights(cut, world) == _weights(whole, world)
        again, less = _miscounted(elsewhere)
        repeated, missed = repeated + again, missed + less
        say(f"{loop.__name__}, case {case + 1}: killed at step {at}, {world} -> {other} ranks: {same} to the last bit")
    return same, repeated, missed


SAVE = loops.SAVE_EVERY


def _train(folder: Path, world: int, loop: Loop, until: Callable[[], bool] | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = str(len(list(folder.glob("*-0"))))
    run_ranks(world, folder / "log", loop, str(folder), name, STEPS, kill=until)


def _reached(folder: Path, step: int) -> bool:
    return any(line.startswith(f"{step} ") for path in folder.glob("0-*") for line in path.read_text().splitlines())


def _weights(folder: Path, world: int) -> set[str]:
    last = max(int(path.name.split("-")[0]) for path in folder.glob("*-0"))
    return {(folder / f"{last}-{rank}").read_text().split("weights ")[1].strip() for rank in range(world)}


def _miscounted(folder: Path) -> tuple[int, int]:
    """Samples repeated and missed among the steps that the final weights have seen: of a step, its last start's."""
    seen: dict[int, tuple[int, list[int]]] = {}
    for path in sorted(folder.glob("[0-9]-*")):
        start = int(path.name.split("-")[0])
        for line in path.read_text().splitlines():
            if line.startswith("weights"):
                continue
            step, *numbers = map(int, line.split())
            if step not in seen or seen[step][0] < start:
                seen[step] = (start, [])
            seen[step][1].extend(numbers)
    whole = [number for step in sorted(seen) for number in seen[step][1]]
    repeated = missed = 0
    for begin in range(0, len(whole), loops.SAMPLES):
        epoch = Counter(whole[begin : begin + loops.SAMPLES])
        repeated += sum(epoch.values()) - len(epoch)
        missed += loops.SAMPLES - len(epoch)
    return repeated, missed


def _speed(folder: Path, pairs: int, block: int) -> list[float]:
    folder.mkdir(parents=True)
    run_ranks(2, folder / "log", loops.pairs, str(folder), pairs, block)
    times = [tuple(map(float, line.split())) for line in (folder / "times").read_text().splitlines()]
    return [without / with_library for with_library, without in times]


if __name__ == "__main__":
    alone(measure, __doc__)
