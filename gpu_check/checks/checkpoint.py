"""Kill a whole run: it continues from its checkpoint, and its result is bit-identical to an undisturbed run's."""

from __future__ import annotations

import time
from collections.abc import Iterator

from ..bench import Bench
from ..finding import Finding, judge
from ..weights import compare_runs
from .kill import has_reached

TITLE, LIMIT_S = "checkpoints of GPU state", 90
STEPS, KEPT_EVERY, KILL_AFTER = 120, 10, 40
PARTS = ("model", "optimizer", "scheduler", "scaler")
_START_S, _END_S = 60.0, 60.0


def run(bench: Bench) -> Iterator[Finding]:
    """Use dropout, so that the GPU's random state matters, and fp16 on a GPU, so that the GradScaler's state does."""
    half = "fp16" if bench.gpus else "bf16"  # CPUs only emulate fp16, which is slow
    arguments = bench.training("steady", STEPS, "--precision", half, "--checkpoint-every", str(KEPT_EVERY))
    exact = {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
    with bench.node("untouched", arguments, exact) as untouched:
        with bench.node("resumed", arguments, exact) as killed:
            killed.wait(lambda: has_reached(killed, KILL_AFTER), f"a checkpoint at step {KILL_AFTER}", _START_S)
            bench.say("all of the run is killed")
            killed.kill()
        began = time.monotonic()
        with bench.node("resumed", arguments, exact, start=2) as resumed:
            resumed.finish(_END_S)
        resumptions = resumed.events(0, "resumed")
        text = (
            f"from step {resumptions[0]['step']}, {time.monotonic() - began:.1f} s to its end"
            if resumptions
            else "from step 0"
        )
        yield judge("goes on from the checkpoint", bool(resumptions), text, f"from step >= {KILL_AFTER}")
        untouched.finish(_END_S)
        yield compare_runs("weights, optimizer, scaler", resumed, untouched, PARTS)
        written = resumed.events(0, "checkpoint")
        pause, write = (max(event[name] for event in written) for name in ("pause_ms", "write_ms"))
        yield judge("what a checkpoint costs", True, f"pause <= {pause} ms, written in <= {write} ms", pause_ms=pause)
