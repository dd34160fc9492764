"""What watching costs an unchanged DDP script: steps a second, watched against not, in turns; and the same weights.

    python -m benchmarks.watch_cost [--quick]

Two ranks train `benchmarks/images.py` under a real agent, once watched and once with MUSTER_OBSERVE=0. Both
are started, and then take turns of half a second with the other stopped (SIGSTOP), in a changing order: two turns are
a pair. The figure is the median of all pairs' ratios; its interval (95 %) is found by drawing from the starts again,
because two starts of the same program differ by several percent for as long as they live. In half of the
starts the watched one is started last, should the order matter. Beside it stands the same with two that are not
watched: what this machine calls equal. Then a watched and an unwatched run train to an end, and
weights, losses and the generators' states are compared bit by bit.
"""

from __future__ import annotations

import itertools
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME

RANKS, TURN_S, FIRST_S = 2, 0.5, 60.0
WATCHED, NOT = "", "0"


def measure(quick: bool) -> dict[str, Any]:
    """Ratios of steps a second, those of two runs that are not watched, and whether the weights are the same."""
    starts, pairs = (4, 8) if quick else (24, 10)
    kinds: dict[str, list[list[tuple[float, float]]]] = {WATCHED: [], NOT: []}
    with nodes.scratch() as scratch:
        for at in range(starts):
            for first, runs in kinds.items():
                runs.append(list(_pairs(scratch / f"{at}-{first}", first, pairs, at % 2 == 1)))
            say(f"start {at + 1} of {starts}: {_interval(kinds[WATCHED])[1]:.3f}x so far")
        same = _same(scratch, 100 if quick else 400)
    rows = [
        _row("steps/s watched against not", kinds[WATCHED], ">= 0.99x"),
        _row("steps/s not watched against not watched", kinds[NOT], ""),
        Row("weights, last loss, generators", "bit-identical" if same else "NOT the same", met=same),
    ]
    return result(rows, ["median of the pairs' ratios, in brackets its interval (95 %, drawn from the starts)"])


def _row(what: str, starts: Sequence[Sequence[tuple[float, float]]], target: str) -> Row:
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


def _interval(starts: Sequence[Sequence[tuple[float, float]]]) -> tuple[float, float, float]:
    ratios = [[theirs / ours for ours, theirs in pairs] for pairs in starts]
    draw = random.Random(0)
    drawn = (itertools.chain(*draw.choices(ratios, k=len(ratios))) for _ in range(2000))
    medians = sorted(statistics.median(some) for some in drawn)
    return medians[50], statistics.median(itertools.chain(*ratios)), medians[-51]


@contextmanager
def _run(folder: Path, observe: str, steps: int) -> Iterator[subprocess.Popen[bytes]]:
    folder.mkdir(parents=True)
    (folder / "train.py").write_text((HOME / "benchmarks" / "images.py").read_text())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_"))}
    environment |= {"PET_NPROC_PER_NODE": str(RANKS), "PET_MASTER_PORT": "0", "MUSTER_RUN_DIR": str(folder / "run")}
    environment |= {"PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "MUSTER_NODE": "here"}
    environment |= {"OWN": str(folder), "STEPS": str(steps), "MUSTER_OBSERVE": observe}
    command = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", "train.py"]
    with (folder / "console").open("w") as console:
        agent = subprocess.Popen(command, cwd=folder, env=environment, stdout=console, stderr=console)
    try:
        yield agent
    finally:
        below = psutil.Process(agent.pid).children(recursive=True) if agent.poll() is None else []
        for process in below:
            process.kill()
        agent.kill()
        agent.wait()


def _pairs(folder: Path, observe: str, pairs: int, last: bool) -> Iterator[tuple[float, float]]:
    """Milliseconds a step, as `observe` says and not watched, of so many pairs of turns; `last`: it starts behind."""
    sides = [(folder / "1", observe), (folder / "2", NOT)]
    with ExitStack() as stack:
        both = [(place, stack.enter_context(_run(place, how, 10**9))) for place, how in sides[:: -1 if last else 1]]
        for place, agent in both:
            _wait_for_lines(place, 20)
            _all(agent, "suspend")
        for at in range(pairs + 1):
            order = both if at % 2 else both[::-1]
            times = {place: _turn(place, agent) for place, agent in order}
            if at:  # the first is to warm up
                yield times[folder / "1"], times[folder / "2"]


def _turn(place: Path, agent: subprocess.Popen[bytes]) -> float:
    known = len(_lines(place))
    _all(agent, "resume")
    time.sleep(TURN_S)
    while len(_lines(place)) < known + 3:
        time.sleep(0.1)
    _all(agent, "suspend")
    # The first line behind the pause ends an interval that began before it.
    inside = _lines(place)[known:]
    return (inside[-1][1] - inside[0][1]) / (inside[-1][0] - inside[0][0]) * 1e3


def _all(agent: subprocess.Popen[bytes], act: str) -> None:
    for process in psutil.Process(agent.pid).children(recursive=True):
        getattr(process, act)()


def _lines(place: Path) -> list[tuple[int, float]]:
    path = place / "times-0"
    whole = path.read_text().splitlines() if path.exists() else []
    return [(int(words[0]), float(words[1])) for line in whole if len(words := line.split()) == 2]


def _wait_for_lines(place: Path, count: int) -> None:
    end = time.monotonic() + FIRST_S
    while len(_lines(place)) < count:
        if time.monotonic() > end:
            raise TimeoutError((place / "console").read_text()[-2000:])
        time.sleep(0.1)


def _same(scratch: Path, steps: int) -> bool:
    """Whether two runs to an end come to the same, bit by bit, on all ranks."""
    weights = []
    for observe in (WATCHED, NOT):
        folder = scratch / f"whole{observe}"
        with _run(folder, observe, steps) as agent:
            if agent.wait(FIRST_S * 3):
                raise RuntimeError((folder / "console").read_text()[-2000:])
        weights.append([(folder / f"weights-{rank}").read_text() for rank in range(RANKS)])
    return weights[0] == weights[1]


if __name__ == "__main__":
    alone(measure, __doc__)
