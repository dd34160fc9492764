"""Wraps the functions of torch that the watcher observes, when the script imports their modules (hooks.py).

The work at every step takes a few microseconds; all else is done only in the steps that are looked at closely.
"""

from __future__ import annotations

import functools
from _thread import get_ident
from time import perf_counter
from types import ModuleType
from typing import Any

from .. import hooks
from .watcher import Watcher

_STATE_FUNCTIONS = ("get_optimizer_state_dict", "get_state_dict", "set_optimizer_state_dict", "set_state_dict")


def patches(watcher: Watcher) -> dict[str, hooks.Patch]:
    """The patch for each module, by the module's name, which is applied once the module has been loaded."""
    return {
        "torch.autograd": functools.partial(_backward, watcher),
        "torch.optim.optimizer": functools.partial(_step, watcher),
        "torch.amp.grad_scaler": functools.partial(_scaler, watcher),
        "torch.utils.data.dataloader": functools.partial(_data, watcher),
        "torch.distributed.checkpoint.state_dict": functools.partial(_states, watcher),
        "torch.serialization": functools.partial(_loads, watcher),
        "torch.distributed.checkpoint.state_dict_loader": functools.partial(_loads, watcher),
        "safetensors.torch": functools.partial(_loads, watcher),
    }


def _backward(watcher: Watcher, module: ModuleType) -> None:
    # Inside `apart()`, no mode or tensor class of the script notices what the watcher does with the script's tensors.
    steps, apart = watcher.steps, module.torch._C.DisableTorchFunction

    def begins(tensors: Any, grad_tensors: Any = None, *more: Any, **others: Any) -> float | None:
        # Activation checkpointing calls `backward` inside `backward`, maybe on another thread: part of this call.
        if steps.doing or steps.off:
            return None
        begin = perf_counter()
        if begin >= steps.due:
            plain = grad_tensors is None and not more[3:] and others.get("inputs") is None
            with apart():
                watcher.backward_begins(tensors, plain, begin)
            begin = perf_counter()
        steps.doing = "backward"
        return begin

    def ends(begin: float, *_: Any) -> None:
        steps.doing = ""
        steps.backwards += 1
        steps.backward += perf_counter() - begin
        if steps.attended:
            with apart():
                watcher.backward_ends()

    hooks.wrap(module, "backward", begins, ends, watcher.fails)


def _step(watcher: Watcher, module: ModuleType) -> None:
    steps = watcher.steps

    def begins(optimizer: Any, *_: Any) -> None:
        if not (steps.all or watcher.handles_states):
            watcher.first_step(optimizer)

    def stepped(optimizer: Any, *_: Any) -> None:
        if watcher.handles_states:
            return
        if steps.attended or not watcher.trains:
            with module.torch._C.DisableTorchFunction():
                watcher.stepped(optimizer)
        elif not steps.off:
            steps.stepped(optimizer)

    # Neither hook is removed: that would break torch's loop over all such hooks, if the script has one after it.
    module.register_optimizer_step_pre_hook(hooks.quiet(begins, watcher.fails))
    module.register_optimizer_step_post_hook(hooks.quiet(stepped, watcher.fails))


def _scaler(watcher: Watcher, module: ModuleType) -> None:
    steps = watcher.steps

    def scales(scaler: Any, outputs: Any) -> tuple[Any, Any]:
        return scaler, outputs

    def scaled(mark: tuple[Any, Any], result: Any, fault: BaseException | None) -> None:
        if fault is None and result is not mark[1]:  # otherwise the scaler is off
            watcher.scaled(mark[0], result)

    def begins(_: Any, optimizer: Any, *__: Any, **___: Any) -> tuple[Any, int]:
        return optimizer, steps.all

    def stepped(mark: tuple[Any, int], _: Any, fault: BaseException | None) -> None:
        if fault is None:
            watcher.scaler_stepped(mark[0], steps.all == mark[1])

    hooks.wrap(module.GradScaler, "scale", scales, scaled, watcher.fails)
    hooks.wrap(module.GradScaler, "step", begins, stepped, watcher.fails)


def _data(watcher: Watcher, module: ModuleType) -> None:
    steps, with_gradients = watcher.steps, module.torch.is_grad_enabled

    def begins(iterator: Any) -> tuple[int, float] | None:
        if steps.doing or steps.off:
            return None
        if get_ident() != steps.main:
            steps.foreign += 1
            return None
        steps.doing = "data"
        return id(iterator), perf_counter()

    def ends(mark: tuple[int, float], _: Any, fault: BaseException | None) -> None:
        steps.doing = ""
        if isinstance(fault, StopIteration):
            steps.exhausted(mark[0])
        elif fault is None and with_gradients():  # without gradients, the batch belongs to an evaluation
            steps.fetched(*mark)

    # The class of torch's iterators, whose name is private. No iterator exists yet that could be asked for its class,
    # since the script's `import torch` has just begun.
    own = [each for each in vars(module).values() if getattr(each, "__module__", "") == module.__name__]
    (owner,) = [each for each in own if isinstance(each, type) and "__next__" in vars(each)]
    hooks.wrap(owner, "__next__", begins, ends, watcher.fails)


def _states(watcher: Watcher, module: ModuleType) -> None:
    """Ignore steps inside these functions: torch steps an optimizer without a state only to give it one."""

    def begins(*_: Any, **__: Any) -> bool:
        watcher.handles_states += 1
        return True

    def ends(*_: Any) -> None:
        watcher.handles_states -= 1

    for name in _STATE_FUNCTIONS:
        hooks.wrap(module, name, begins, ends, watcher.fails)
        if name.startswith("set_"):
            hooks.wrap(module, name, watcher.loads, watcher.loaded, watcher.fails)


def _loads(watcher: Watcher, module: ModuleType) -> None:
    """Watch what the script loads before its first step: it may be the checkpoint that the script continues from."""
    for name in ("load", "load_file"):
        if hasattr(module, name):
            hooks.wrap(module, name, watcher.loads, watcher.loaded, watcher.fails)
