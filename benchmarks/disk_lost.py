"""The first host's disk is destroyed: from which step do the others continue?

    python -m benchmarks.disk_lost [--quick]

Three hosts are network namespaces (lab/network.py), each with a disk of its own. All processes are killed at a moment
drawn at random, the first host's run folder is deleted whole, and the run is started again. The rival is the DDP loop
of PyTorch's tutorial under torchrun, whose rank 0 saves a snapshot after each epoch.
"""

from __future__ import annotations

import random
import shutil
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.partitions import RECIPE
from benchmarks.spaces import SEEN, Nodes, trainer, wait
from benchmarks.venv import HOME
from lab.network import PORT, Lab, missing
from muster.checkpoint import store

HOSTS, EVERY, LIMIT_S = 3, 50, 90.0


def measure(quick: bool) -> dict[str, Any]:
    """How often the run continued, the steps that were done again, and how far behind the lost disk it began."""
    if why := missing():
        return result([Row("the first host's disk is destroyed", f"not measured: {why}")])
    trials, rival_trials = (2, 1) if quick else (10, 2)
    draw = random.Random(16)
    with nodes.scratch() as scratch, Lab(HOSTS) as lab:
        again, behind = _ours(lab, scratch, trials, draw)
        theirs = [_rival(lab, scratch / f"rival-{number}", draw) for number in range(rival_trials)]
    kept = sum(start > 0 for start in theirs)
    rows = [
        Row(
            "runs that continue after the first host's disk is destroyed",
            f"{len(again)} of {trials}",
            f"torchrun {kept} of {rival_trials}",
            target=f"{trials} of {trials}",
            met=len(again) == trials,
        ),
        Row(
            f"... behind the newest checkpoint of that disk, of {EVERY} steps between two",
            spread(behind, ".0f") if behind else "all",
            target=f"<= {EVERY}",
            met=bool(behind) and max(behind) <= EVERY,
        ),
        Row("... steps done again", spread(again, ".0f") if again else "all", "torchrun: all"),
    ]
    return result(rows, [f"{HOSTS} hosts as network namespaces of this machine, --checkpoint-every {EVERY}"])


def _ours(lab: Lab, root: Path, trials: int, draw: random.Random) -> tuple[list[int], list[int]]:
    recipe = root / "recipe.py"
    recipe.write_text(RECIPE)
    options = ["--recipe", str(recipe), "--batch", "20", "--steps", "1000000", "--eval-every", "0", "--log-every", "1"]
    options += ["--checkpoint-every", str(EVERY)]
    again: list[int] = []
    behind: list[int] = []
    run = trainer(lab, root / "ours", options)
    for number in range(trials):
        wait(lambda: len(_events(run, 1, "copied")) >= 2, LIMIT_S, run)  # noqa: B023
        time.sleep(draw.uniform(0.0, 2.0))
        lab.stop()
        reached = max(event["step"] for event in _events(run, 0, "step"))
        newest, _ = store.newest_usable(run.folder(0) / "checkpoints")
        for place in range(HOSTS):  # what one start told must not be taken for the next one's
            shutil.rmtree(run.folder(place) / "ranks")
        shutil.rmtree(run.folder(0))
        run = trainer(lab, root / "ours", options, start=number + 2)
        resumed = wait(lambda: _events(run, 0, "resumed"), LIMIT_S)  # noqa: B023
        if not (resumed and newest):
            say(f"trial {number + 1}: it did not continue\n{run.last_words()}")
            break
        again.append(reached - resumed[0]["step"])
        behind.append(newest.manifest.step - resumed[0]["step"])
        say(f"trial {number + 1}: at step {reached}, continued at {resumed[0]['step']}; {behind[-1]} behind that disk")
    lab.stop()
    return again, behind


def _events(run: Nodes, place: int, kind: str) -> list[dict[str, Any]]:
    """What the rank on this host has told of one kind."""
    return [event for event in nodes.lines(run.folder(place) / f"ranks/rank-{place}.jsonl") if event["kind"] == kind]


def _rival(lab: Lab, root: Path, draw: random.Random) -> int:
    """The step at which torchrun's ranks begin after the same."""
    at = f"{lab.hosts[0].address}:{PORT}"
    command = [sys.executable, "-m", "torch.distributed.run", "--nnodes", str(HOSTS), "--rdzv-backend", "c10d"]
    command += ["--rdzv-endpoint", at, "--rdzv-id", root.name, "-m", "benchmarks.rivals.snapshot"]
    command += ["--steps", "1000000", "--folder", str(root / SEEN)]
    environment = {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0", "PYTHONPATH": str(HOME)}
    run = Nodes(lab, root, command, [environment] * HOSTS)

    def steps() -> list[int]:
        logs = [run.folder(place) / "logs" / "node.log" for place in range(HOSTS)]
        return [line["step"] for log in logs for line in nodes.lines(log)]

    wait(lambda: len(steps()) > 5, LIMIT_S, run)
    time.sleep(draw.uniform(0.0, 1.0))
    lab.stop()
    shutil.rmtree(run.folder(0))
    for place in range(1, HOSTS):
        (run.folder(place) / "logs" / "node.log").unlink()
    run = Nodes(lab, root, command, [environment] * HOSTS)
    began: list[int] = wait(steps, LIMIT_S, run)
    lab.stop()
    say(f"torchrun: begins at step {began[0]}")
    return began[0]


if __name__ == "__main__":
    alone(measure, __doc__)
