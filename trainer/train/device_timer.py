"""Measure work on this rank's device. A GPU works asynchronously, so the host's clock would only measure waits."""

from __future__ import annotations

import time
from typing import Any

import torch


class DeviceTimer:
    """Sets marks in the device's own queue of work and measures the milliseconds between two of them.

    on_gpu: the GPU reaches a mark only when it has done the work before it, which may be later than the call.
    """

    def __init__(self, device: torch.device) -> None:
        self.on_gpu = device.type == "cuda"

    def mark(self) -> Any:
        """A mark at this moment: seconds on a CPU, an event in the current stream on a GPU."""
        if not self.on_gpu:
            return time.perf_counter()
        event = torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def ms(self, begin: Any, end: Any) -> float:
        """Milliseconds from one mark to another.

        On a GPU both marks must be reached: synchronize with the device first.
        """
        return float(begin.elapsed_time(end)) if self.on_gpu else (end - begin) * 1e3
