"""kill -9 of one rank, again and again within a run: how often, and how soon, is it training again without help, and
how many steps does it do again?

    python -m benchmarks.kill_worker [--quick]

Seconds run from the kill to the end of the next step on every rank; one row subtracts what three processes take that
import torch at once, which is measured around the run. The state has 10 MB. Steps lost are those that a living rank had
finished and that come again. The rival is the bare DDP loop under torchrun's defaults with as many restarts: it saves
nothing. A trial that takes longer than a limit counts as hung, and its run is started again.
"""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME
from deploy.local.processes import labelled

WORLD, LIMIT_S, GOAL_S, HUNG_S = 3, 5.0, 1.0, 30.0
RECIPE = HOME / "benchmarks" / "ten_megabytes.py"


def measure(quick: bool) -> dict[str, Any]:
    """Of each side: kills survived, and the seconds each took."""
    kills, rival_kills = (3, 1) if quick else (20, 3)
    draw = random.Random(0)
    imports = [_import_torch() for _ in range(3)]
    with nodes.scratch() as scratch:
        ours, lost = _ours(nodes.run_folder(scratch, "ours"), kills, draw)
        imports += [_import_torch() for _ in range(3)]
        theirs = _rival(scratch, rival_kills, draw)
    torch = statistics.median(imports)
    beyond = [seconds - torch for seconds in ours]
    met = len(ours) == kills and max(beyond, default=LIMIT_S + 1) <= LIMIT_S
    rows = [
        Row(
            "training again after kill -9 of a rank",
            f"{len(ours)} of {kills}",
            f"torchrun {len(theirs)} of {rival_kills}",
            target=f"{kills} of {kills}",
            met=len(ours) == kills,
        ),
        Row(
            "... steps lost in each",
            ", ".join(f"{steps} in {lost.count(steps)}" for steps in sorted(set(lost))) or "not known",
            "torchrun all" if theirs else "torchrun not known",
            target=f"0 in {kills}",
            met=lost == [0] * kills,
        ),
        Row(
            "... seconds until all train, import included",
            f"{spread(ours)} s" if ours else "never",
            f"torchrun {spread(theirs)} s" if theirs else "torchrun never",
            target=f"<= {GOAL_S:.0f} s each",
            met=len(ours) == kills and max(ours) <= GOAL_S,
        ),
        Row(
            "... seconds beyond torch's import",
            f"{spread(beyond)} s" if beyond else "never",
            f"torchrun {spread([seconds - torch for seconds in theirs])} s" if theirs else "torchrun never",
            target=f"<= {LIMIT_S:.0f} s each",
            met=met,
        ),
    ]
    notes = [
        f"import of torch in {WORLD} processes at once: {spread(imports)} s",
        f"the rival counts as hung after {HUNG_S:.0f} s",
    ]
    return result(rows, notes)


def _import_torch() -> float:
    began = time.perf_counter()
    processes = [subprocess.Popen([sys.executable, "-c", "import torch"], cwd=HOME) for _ in range(WORLD)]
    for process in processes:
        process.wait()
    return time.perf_counter() - began


def _ours(folder: Path, kills: int, draw: random.Random) -> tuple[list[float], list[int]]:
    """Seconds of each recovery and the steps that it lost, up to the first that did not come."""
    taken: list[float] = []
    lost: list[int] = []
    arguments = ["--recipe", str(RECIPE), "--steps", "1000000", "--eval-every", "0"]
    arguments += ["--checkpoint-every", "50", "--log-every", "1"]
    with nodes.ours(folder, WORLD - 1, arguments) as run:
        run.wait(lambda: all(_last_step(run, rank) for rank in range(WORLD)))
        for _ in range(kills):
            time.sleep(draw.uniform(0.0, 0.5))  # some kills shall meet a checkpoint being written
            rank = draw.randrange(WORLD)
            killed = _kill(_pid(run, rank))
            again = run.wait_or_none(lambda: _all_stepped_since(run, killed), HUNG_S)  # noqa: B023
            if not again:
                say(f"rank {rank}: not training again after {HUNG_S:.0f} s\n{run.last_words()}")
                break
            taken.append(again - killed)
            lost.append(_steps_lost(run, rank, killed))
            say(
                f"kill of rank {rank}: training again after {taken[-1]:.2f} s {_phases(run, killed)}, "
                f"{lost[-1]} steps lost"
            )
    return taken, lost


def _rival(scratch: Path, kills: int, draw: random.Random) -> list[float]:
    """Seconds of each recovery; after one that did not come, the next trial has a new run."""
    taken: list[float] = []
    tried = 0
    while tried < kills:
        folder = nodes.run_folder(scratch, f"rival-{tried}")
        with nodes.rival(folder, WORLD - 1, "benchmarks.rivals.bare", ["--steps", "1000000"]) as run:
            run.wait(run.console_lines)
            while tried < kills:
                tried += 1
                time.sleep(draw.uniform(0.0, 0.5))
                killed = _kill(draw.choice(_rank_processes(folder)).pid)
                again = run.wait_or_none(lambda: _said_since(run, killed), HUNG_S)  # noqa: B023
                say(f"torchrun, kill {tried}: " + (f"after {again - killed:.2f} s" if again else "hung"))
                if not again:
                    break
                taken.append(again - killed)
    return taken


def _kill(pid: int) -> float:
    psutil.Process(pid).kill()
    return time.time()


def _pid(run: nodes.Run, rank: int) -> int:
    return int([event["pid"] for event in run.events(rank) if event["kind"] == "started"][-1])


def _last_step(run: nodes.Run, rank: int) -> float | None:
    return next((event["t"] for event in reversed(run.events(rank)) if event["kind"] == "step"), None)


def _all_stepped_since(run: nodes.Run, killed: float) -> float | None:
    """When the last rank ended its first step after the kill; a step that was under way does not count."""
    firsts: list[float] = []
    for rank in range(WORLD):
        since = [event for event in run.events(rank) if event["t"] > killed]
        started = next((i for i, event in enumerate(since) if event["kind"] == "started"), len(since))
        firsts += [event["t"] for event in since[started:] if event["kind"] == "step"][:1]
    return max(firsts) if len(firsts) == WORLD else None


def _steps_lost(run: nodes.Run, doomed: int, killed: float) -> int:
    """How many steps that another rank than the killed one had finished came again."""
    starts = [event for event in run.events(0) if event["t"] > killed and event["kind"] == "plan"]
    finished = [
        event["step"]
        for rank in {*range(WORLD)} - {doomed}
        for event in run.events(rank)
        if event["kind"] == "step" and event["t"] < starts[0]["t"]
    ]
    return int(max(finished) - starts[0]["start_step"])


def _phases(run: nodes.Run, killed: float) -> str:
    """Where the time went: until every rank had joined, until rank 0 had restored, until the first step."""
    started = [next(e["t"] for e in run.events(r) if e["t"] > killed and e["kind"] == "started") for r in range(WORLD)]
    plan = next(e["t"] for e in run.events(0) if e["t"] > killed and e["kind"] == "plan")
    stepped = _all_stepped_since(run, killed) or plan
    return f"(joined {max(started) - killed:.2f}, restored +{plan - max(started):.2f}, step +{stepped - plan:.2f})"


def _rank_processes(folder: Path) -> list[psutil.Process]:
    return [process for process in labelled(folder) if "RANK" in process.environ()]


def _said_since(run: nodes.Run, killed: float) -> float | None:
    return next((line["t"] for line in run.console_lines() if line["t"] > killed and line["step"] == 1), None)


if __name__ == "__main__":
    alone(measure, __doc__)
