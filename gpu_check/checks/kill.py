"""Kill one of two ranks with SIGKILL while they train: the run continues, and ends with the correct weights."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from typing import Any

from trainer.node.processes import is_alive

from ..bench import Bench
from ..finding import Finding, judge
from ..network import Place
from ..nodes import Run
from ..weights import compare_runs

TITLE, LIMIT_S = "a rank is killed with SIGKILL", 100
STEPS, KEPT_EVERY, KILL_AFTER = 150, 10, 40
_START_S, _END_S = 60.0, 80.0


def run(bench: Bench) -> Iterator[Finding]:
    """Two runs of two hosts side by side; one of them is not disturbed."""
    arguments = bench.training("steady", STEPS, "--checkpoint-every", str(KEPT_EVERY), "--timeout", "10")
    # Otherwise some cuBLAS results vary: the weights would differ for a reason other than the restart.
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    hosts = [Place(), Place()]
    with (
        bench.hosts("killed", arguments, hosts, variables=exact) as killed,
        bench.hosts("untouched", arguments, hosts, variables=exact) as untouched,
    ):
        killed.wait(lambda: has_reached(killed, KILL_AFTER), f"a checkpoint at step {KILL_AFTER}", _START_S)
        victim = int(killed.events(1, "started")[0]["pid"])
        bench.say(f"rank 1 (process {victim}) is killed")
        moment = time.time()
        os.kill(victim, signal.SIGKILL)
        back = killed.wait(lambda: step_after(killed, 0, moment, 2), "training to go on", _START_S, restart=True)
        seconds = back["t"] - moment
        backend = killed.events(0, "started")[-1]["backend"]
        yield judge(
            "killed: training goes on", backend == bench.backend, f"{seconds:.1f} s later, {backend}", "within 60 s",
            seconds=round(seconds, 2), backend=backend,
        )  # fmt: skip
        endings = [f"rank {rank} {event['how']}" for rank in (0, 1) for event in killed.events(rank, "ended")[:1]]
        yield judge("killed: who ended how is recorded", bool(endings), "; ".join(endings), "an `ended` event")
        killed.finish(_END_S, restart=True)
        untouched.finish(_END_S)
        yield compare_runs("killed: weights beside a run left alone", killed, untouched, ("model", "optimizer"))
    yield judge("killed: the dead rank is gone", not is_alive(victim), f"process {victim}", "no such process")


def has_reached(run: Run, step: int) -> bool:
    """Whether rank 0 has written a checkpoint at this step or later."""
    return any(event["step"] >= step for event in run.events(0, "checkpoint"))


def step_after(run: Run, rank: int, moment: float, attempts: int) -> dict[str, Any] | None:
    """A rank's first step after `moment`, once the rank has started `attempts` times."""
    starts = run.events(rank, "started")
    since = max(moment, starts[-1]["t"]) if len(starts) >= attempts else float("inf")
    return next((event for event in run.events(rank, "step") if event["t"] > since), None)
