"""Where the watcher looks into torch: the functions of its modules that are wrapped as a script imports them.

Each wrapper does what the function did, whatever becomes of the watcher: its methods never raise.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import Any

from .watcher import Watcher


def patches(watcher: Watcher) -> dict[str, Callable[[ModuleType], None]]:
    """By module's name what is done to it once it has been loaded."""
    return {
        "torch.autograd": functools.partial(_backward, watcher),
        "torch.optim.optimizer": functools.partial(_step, watcher),
        "torch.amp.grad_scaler": functools.partial(_scaler, watcher),
        "torch.utils.data.dataloader": functools.partial(_data, watcher),
        "torch._dynamo.trace_rules": _leave_out,
    }


def _backward(watcher: Watcher, module: ModuleType) -> None:
    real = module.backward

    @functools.wraps(real)
    def backward(tensors: Any, grad_tensors: Any = None, *more: Any, **others: Any) -> Any:
        # A checkpoint inside calls it again, maybe on another thread: that is part of this one.
        if watcher.doing == "backward" or not watcher.on:
            return real(tensors, grad_tensors, *more, **others)
        plain = grad_tensors is None and not more[3:] and others.get("inputs") is None
        begin = watcher.backward_begins(tensors, plain)
        try:
            return real(tensors, grad_tensors, *more, **others)
        finally:
            watcher.backward_ends(begin)

    module.backward = backward  # type: ignore[attr-defined]


def _step(watcher: Watcher, module: ModuleType) -> None:
    module.register_optimizer_step_post_hook(lambda optimizer, *_: watcher.stepped(optimizer))


def _scaler(watcher: Watcher, module: ModuleType) -> None:
    scaler = module.GradScaler
    scale, step = scaler.scale, scaler.step

    @functools.wraps(scale)
    def scaling(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if scaled is not outputs:  # else it is switched off
            watcher.scaled(self, scaled)
        return scaled

    @functools.wraps(step)
    def stepping(self: Any, *words: Any, **named: Any) -> Any:
        before = watcher.all_steps
        done = step(self, *words, **named)
        watcher.scaler_stepped(watcher.all_steps == before)
        return done

    scaler.scale, scaler.step = scaling, stepping


def _data(watcher: Watcher, module: ModuleType) -> None:
    iterator = module._BaseDataLoaderIter
    real = iterator.__next__

    @functools.wraps(real)
    def following(self: Any) -> Any:
        if watcher.doing or not watcher.on:
            return real(self)
        begin = perf_counter()
        watcher.doing = "data"
        try:
            batch = real(self)
        except StopIteration:
            watcher.exhausted(self)
            raise
        finally:
            watcher.doing = ""
        watcher.fetched(self, begin)
        return batch

    iterator.__next__ = following


def _leave_out(module: ModuleType) -> None:
    """torch.compile shall not look into what is done here: as in torch's own files, there is nothing to compile."""
    module.SKIP_DIRS.append(os.path.dirname(os.path.abspath(__file__)) + os.sep)
    module._recompile_re()
