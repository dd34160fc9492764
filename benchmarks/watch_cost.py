"""What watching costs an unchanged DDP script: steps per second with and without, in turns; and the same weights.

    python -m benchmarks.watch_cost [--quick]

Two ranks train `gpu_check/scripts/loop.py` under a real agent, once watched and once with MUSTER_OBSERVE=0. Both runs
start, and then take turns while the other is stopped (gpu_check/turns.py): two turns are a pair. The figure is the
median of all pairs' ratios; its interval (95 %) comes from resampling the starts, because two starts of the same
program differ by several percent for as long as they run. In half of the starts the watched run starts last, in case
the order matters. The same is measured with two runs that are not watched, which shows what counts as equal on this
machine. Then a watched and an unwatched run train to an end, and weights, losses and the generators' states are
compared bit by bit.
"""

from __future__ import annotations

import itertools
import random
import statistics
from collections.abc import Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from gpu_check.nodes import SCRIPTS, Run
from gpu_check.turns import Contender, in_turns
from muster.files import read_lines

ENDLESS = 0
WATCHED, NOT = "1", "0"
Pairs = list[tuple[float, float]]


def measure(quick: bool) -> dict[str, Any]:
    """Ratios of steps per second, the same for two unwatched runs, and whether the weights are the same."""
    starts, pairs = (4, 8) if quick else (24, 6)
    kinds: dict[str, list[Pairs]] = {WATCHED: [], NOT: []}
    with nodes.scratch() as scratch:
        for at in range(starts):
            for first, runs in kinds.items():
                runs.append(_pairs(scratch / f"{at}-{first}", first, pairs, at % 2 == 1))
            say(f"start {at + 1} of {starts}: {_interval(kinds[WATCHED])[1]:.3f}x so far")
        watched, plain = (_end(scratch / f"whole-{how}", how, 100 if quick else 400) for how in (WATCHED, NOT))
    rows = [
        _row("steps/s watched against not", kinds[WATCHED], ">= 0.99x"),
        _row("steps/s not watched against not watched", kinds[NOT], ""),
        Row("weights, last loss, generators", "bit-identical" if watched == plain else "NOT the same",
            met=watched == plain),
    ]  # fmt: skip
    return result(rows, ["median of the pairs' ratios, in brackets its interval (95 %, drawn from the starts)"])


def _row(what: str, starts: Sequence[Pairs], target: str) -> Row:
    low, middle, high = _interval(starts)
    ours, theirs = (statistics.median(times) for times in zip(*itertools.chain(*starts), strict=True))
    return Row(
        what,
        f"{1e3 / ours:.1f}/s ({ours:.2f} ms)",
        f"{1e3 / theirs:.1f}/s ({theirs:.2f} ms)",
        f"{middle:.3f}x ({low:.3f}-{high:.3f}), {sum(map(len, starts))} pairs in {len(starts)} starts",
        target,
        middle >= 0.99 if target else None,
    )


def _interval(starts: Sequence[Pairs]) -> tuple[float, float, float]:
    ratios = [[theirs / ours for ours, theirs in pairs] for pairs in starts]
    draw = random.Random(0)
    drawn = (itertools.chain(*draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    medians = sorted(statistics.median(some) for some in drawn)
    return medians[50], statistics.median(itertools.chain(*ratios)), medians[-51]


def _run(folder: Path, observe: str, steps: int) -> Run:
    variables = {"MUSTER_OBSERVE": observe, "OMP_NUM_THREADS": "1"}
    return Run(folder, ["--script", str(SCRIPTS / "loop.py"), "gloo", str(steps)], ranks=2, variables=variables)


def _pairs(folder: Path, observe: str, pairs: int, last: bool) -> Pairs:
    """Milliseconds per step in pairs of turns: the run with `observe`, and an unwatched run.

    `pairs` is the number of pairs; with `last`, the run with `observe` starts last.
    """
    sides = [("1", observe), ("2", NOT)]
    with ExitStack() as stack:
        both = {}
        for name, how in sides[:: -1 if last else 1]:
            run = stack.enter_context(_run(folder / name, how, ENDLESS))
            # With two ranks, each line of the node's own log has the rank in front; the rank's log has plain lines.
            both[name] = Contender(run, partial(read_lines, run.folder / "logs" / "rank-0.log"))
        taken = in_turns(both, pairs + 1)
    return list(zip(taken["1"], taken["2"], strict=True))[1:]  # the first pair is a warm-up


def _end(folder: Path, observe: str, steps: int) -> list[Any]:
    """The digests of weights, loss and generators of each rank at the end."""
    with _run(folder, observe, steps) as run:
        run.finish(180.0)
        return run.records_of_ranks()


if __name__ == "__main__":
    alone(measure, __doc__)
