"""The functions of torch that the watcher wraps when a script imports their modules.

Each wrapper does what the function did, even if the watcher fails; the watcher's methods never raise. The work at every
step takes a few microseconds; the rest waits for the steps that get a closer look.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from collections.abc import Callable
from time import perf_counter
from types import ModuleType
from typing import Any

from .watcher import Watcher


def patches(watcher: Watcher) -> dict[str, Callable[[ModuleType], None]]:
    """What to do to each module once it has been loaded, by the module's name."""
    return {
        "torch.autograd": functools.partial(_backward, watcher),
        "torch.optim.optimizer": functools.partial(_step, watcher),
        "torch.amp.grad_scaler": functools.partial(_scaler, watcher),
        "torch.utils.data.dataloader": functools.partial(_data, watcher),
    }


def _backward(watcher: Watcher, module: ModuleType) -> None:
    real, steps = module.backward, watcher.steps

    @functools.wraps(real)
    def backward(tensors: Any, grad_tensors: Any = None, *more: Any, **others: Any) -> Any:
        # An activation checkpoint inside calls it again, maybe on another thread: that belongs to this call.
        if steps.doing or steps.off:
            return real(tensors, grad_tensors, *more, **others)
        begin = perf_counter()
        if begin >= steps.due:
            plain = grad_tensors is None and not more[3:] and others.get("inputs") is None
            watcher.backward_begins(tensors, plain, begin)
            begin = perf_counter()
        steps.doing = "backward"
        try:
            return real(tensors, grad_tensors, *more, **others)
        finally:
            steps.doing = ""
            steps.backwards += 1
            steps.backward += perf_counter() - begin
            if steps.attended:
                watcher.backward_ends()

    module.backward = backward  # type: ignore[attr-defined]


def _step(watcher: Watcher, module: ModuleType) -> None:
    steps = watcher.steps

    def stepped(optimizer: Any, *_: Any) -> None:
        if steps.attended or not watcher.trains:
            watcher.stepped(optimizer)
        elif not steps.off:
            steps.stepped(id(optimizer))

    module.register_optimizer_step_post_hook(stepped)


def _scaler(watcher: Watcher, module: ModuleType) -> None:
    scaler, steps = module.GradScaler, watcher.steps
    scale, step = scaler.scale, scaler.step

    @functools.wraps(scale)
    def scaling(self: Any, outputs: Any) -> Any:
        scaled = scale(self, outputs)
        if scaled is not outputs:  # otherwise the scaler is off
            watcher.scaled(self, scaled)
        return scaled

    @functools.wraps(step)
    def stepping(self: Any, optimizer: Any, *words: Any, **named: Any) -> Any:
        before = steps.all
        done = step(self, optimizer, *words, **named)
        watcher.scaler_stepped(optimizer, steps.all == before)
        return done

    scaler.scale, scaler.step = scaling, stepping


def _data(watcher: Watcher, module: ModuleType) -> None:
    iterator, steps = module._BaseDataLoaderIter, watcher.steps
    real, with_gradients = iterator.__next__, module.torch.is_grad_enabled

    @functools.wraps(real)
    def following(self: Any) -> Any:
        if steps.doing or steps.off:
            return real(self)
        if get_ident() != steps.main:
            steps.foreign += 1
            return real(self)
        begin = perf_counter()
        steps.doing = "data"
        try:
            batch = real(self)
        except StopIteration:
            steps.exhausted(id(self))
            raise
        finally:
            steps.doing = ""
        if with_gradients():  # without gradients, it belongs to an evaluation
            steps.fetched(id(self), begin)
        return batch

    iterator.__next__ = following
