"""How long `backward` waits for other ranks: from the end of its own work to its return, when DDP has the sums.

The autograd engine runs its callbacks in the order in which they were queued, and a hook on the root tensor queues its
callback before DDP does. On a GPU, two events of the device give the time; they are read once both have passed.
"""

from __future__ import annotations

import sys
from time import perf_counter
from typing import Any

from .. import hooks


class Wait:
    """The wait of one step, summed over all its calls of `backward`."""

    def __init__(self, torch: Any) -> None:
        self._torch, self._seconds, self.known = torch, 0.0, True
        self._computed: Any = None
        self._handle: Any = None
        self._on_gpu = False
        self._events: list[tuple[Any, Any]] = []

    def begin(self, tensors: Any) -> None:
        """Note that `backward` begins from `tensors`."""
        self._computed = None
        root = tensors[0] if isinstance(tensors, (list, tuple)) else tensors
        if not isinstance(root, self._torch.Tensor) or not root.requires_grad:
            return
        self._on_gpu = root.device.type == "cuda"
        queue = self._torch.autograd.Variable._execution_engine.queue_callback

        def began(_: Any) -> None:
            self._let_go()
            queue(hooks.quiet(self._ready))

        self._handle = root.register_hook(hooks.quiet(began))

    def _let_go(self) -> None:
        """Remove the hook from the script's tensor, which the script may save, or call `backward` on again."""
        if self._handle:
            self._handle.remove()
        self._handle = None

    def _ready(self) -> None:
        self._computed = self._mark()

    def _mark(self) -> Any:
        if not self._on_gpu:
            return perf_counter()
        if self._torch.cuda.is_current_stream_capturing():
            return None
        event = self._torch.cuda.Event(enable_timing=True)
        event.record()
        return event

    def end(self) -> None:
        """Note that `backward` has returned or failed."""
        self._let_go()
        now = self._mark() if self._computed is not None else None
        if now is None:
            self.known = False
        elif self._on_gpu:
            self._events.append((self._computed, now))
        else:
            self._seconds += now - self._computed

    def is_readable(self) -> bool:
        """Whether the time can be read without waiting for the device."""
        return not self._events or bool(self._events[-1][1].query())

    def seconds(self) -> float:
        """The seconds in total, once all parts are known."""
        return self._seconds + sum(float(before.elapsed_time(after)) for before, after in self._events) / 1e3


def new_wait(torch: Any) -> Wait | None:
    """A new Wait; None if there is no other rank to wait for, or if the engine is not torch's usual one."""
    distributed = sys.modules.get("torch.distributed")
    if not distributed or not distributed.is_available() or not distributed.is_initialized():
        return None
    compiled = sys.modules.get("torch._dynamo.compiled_autograd")
    if distributed.get_world_size() < 2 or getattr(compiled, "compiled_autograd_enabled", False):
        return None
    return Wait(torch)
