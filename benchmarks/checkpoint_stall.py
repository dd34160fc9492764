"""How long a step stalls for a checkpoint: with the background writer, and with a plain blocking torch.save.

    python -m benchmarks.checkpoint_stall [--quick]

The state is a model's and its Adam optimizer's, about 300 MB. The two take turns, each once the disk is idle again.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path
from threading import Event
from typing import Any

import torch

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from muster.checkpoint.writer import BackgroundWriter, WriteResult

LAYERS, WIDTH = 24, 1024  # x 3: the weights and Adam's two moments
LIMIT = 0.25


def measure(quick: bool) -> dict[str, Any]:
    """Milliseconds that the caller waits; the first of each, which uses cold memory, is reported separately."""
    repetitions = 4 if quick else 15
    state = _state()
    size = sum(tensor.numel() * 4 for part in state.values() for tensor in part.values())
    ours: list[float] = []
    plain: list[float] = []
    written: list[WriteResult] = []
    done = Event()
    with nodes.scratch() as scratch:

        def on_done(checkpoint: WriteResult) -> None:
            written.append(checkpoint)
            done.set()

        writer = BackgroundWriter(scratch / "ours", 1, False, on_done)
        for step in range(repetitions + 1):
            plain.append(_save(state, scratch / "plain.pt"))
            ours.append(writer.submit(step, state, None, {}))
            done.wait()
            done.clear()
            say(f"stall {step}: {ours[-1]:.0f} ms, torch.save {plain[-1]:.0f} ms")
        writer.finish()
    ratio = statistics.median(ours[1:]) / statistics.median(plain[1:])
    row = Row(
        f"stall for a checkpoint of {size / 1e6:.0f} MB",
        f"{spread(ours[1:], '.0f')} ms",
        f"torch.save {spread(plain[1:], '.0f')} ms",
        f"{ratio:.2f}x",
        f"<= {LIMIT}x",
        ratio <= LIMIT,
    )
    wrote = statistics.median(checkpoint.write_ms for checkpoint in written)
    notes = [
        f"the first of each: {ours[0]:.0f} ms, torch.save {plain[0]:.0f} ms",
        f"ours is on the disk, synced, read back and verified {wrote:.0f} ms later; torch.save does not sync or verify",
    ]
    return result([row], notes)


def _state() -> dict[str, dict[str, torch.Tensor]]:
    parts = ("model", "exp_avg", "exp_avg_sq")
    return {part: {f"layer{i}.weight": torch.randn(WIDTH, WIDTH) for i in range(LAYERS)} for part in parts}


def _save(state: dict[str, Any], path: Path) -> float:
    began = time.perf_counter()
    torch.save(state, path)
    taken = (time.perf_counter() - began) * 1e3
    with path.open("rb") as file:  # not timed, so that the rival's unwritten data does not slow down Muster
        os.fsync(file.fileno())
    return taken


if __name__ == "__main__":
    alone(measure, __doc__)
