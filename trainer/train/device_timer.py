"""When something was done on this rank's device. On a GPU the host runs ahead: its own clock shows where it waited."""

from __future__ import annotations

import time
from typing import Any

import torch


class Clock:
    """Marks in the device's own order of work, and the milliseconds between two of them."""

    def __init__(self, device: torch.device) -> None:
        self._on_gpu = device.type == "cuda"

    def mark(self) -> Any:
        """Now: seconds on a CPU, an event in the current stream on a GPU."""
        if not self._on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, begin: Any, end: Any) -> float:
        """Milliseconds from one mark to another. On a GPU both must have passed: wait for the device first."""
        return float(begin.elapsed_time(end)) if self._on_gpu else (end - begin) * 1e3
