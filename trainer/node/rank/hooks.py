"""Wraps functions in the script's process with Muster's hooks, once their module has run. Only this module does that.

A script must not notice a hook. So a wrapped function keeps its name, its signature and its place in pickles, returns
the same results, and raises its own exceptions with its own traceback. An error in a hook never reaches the script.
"""

from __future__ import annotations

import functools
import importlib.machinery
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import ModuleType, TracebackType
from typing import Any

_FOLDER = os.path.dirname(os.path.abspath(__file__)) + os.sep
# `warnings` skips frames of a file with such a name, so a warning still shows the script's line.
_SKIPPED_FILE = "<frozen importlib._bootstrap of muster>"
Patch = Callable[[ModuleType], None]


def _pass(_: Exception) -> None:
    """Ignore the error; what the hook would have seen stays unknown."""


def wrap(
    owner: Any,
    name: str,
    before: Callable[..., Any],
    after: Callable[..., Any] | None = None,
    fails: Callable[[Exception], object] = _pass,
) -> None:
    """Call `before` when `owner.name` is called, and `after(mark, result, fault)` when it ends; errors as in `quiet`.

    `mark` is what `before` returns. If that is None, the call is not watched, and `after` is not called.
    """
    real = getattr(owner, name)

    def call(*words: Any, **named: Any) -> Any:
        try:
            mark: Any = None
            try:  # the same as `quiet`, inlined because one call less matters here
                mark = before(*words, **named)
            except BaseException as fault:
                if not _takes(fault, fails):
                    raise
            try:
                result = real(*words, **named)
            except BaseException as fault:
                if after and mark is not None:
                    quiet(after, fails)(mark, None, fault)
                raise
            try:
                if after and mark is not None:
                    after(mark, result, None)
            except BaseException as fault:
                if not _takes(fault, fails):
                    raise
            return result
        except BaseException as fault:
            fault.__traceback__ = _without_ours(fault.__traceback__)
            raise  # without a value, so that Python does not add this frame a second time

    call.__code__ = call.__code__.replace(co_filename=_SKIPPED_FILE, co_name=getattr(real, "__name__", name))
    functools.update_wrapper(call, real)
    call._torchdynamo_inline = real  # type: ignore[attr-defined]  # torch.compile traces this instead
    with suppress(Exception):  # some builtin functions have no signature
        if not hasattr(real, "__wrapped__"):  # a function that already is a wrapper has its own signature
            call.__signature__ = sys.modules["inspect"].signature(real)  # type: ignore[attr-defined]
    setattr(owner, name, call)
    if isinstance(owner, ModuleType):
        _replace(name, real, call)


def _replace(name: str, real: Any, call: Any) -> None:
    """Put the wrapper also into modules that have imported the function; a forked rank has all of torch loaded."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is real:
            names[name] = call
    register = getattr(sys.modules.get("torch.jit._builtins"), "_register_builtin", None)
    if register and (real.__module__, name) == ("torch.autograd", "backward"):
        register(call, "aten::backward")


def quiet(act: Callable[..., Any], fails: Callable[[Exception], object] = _pass) -> Callable[..., Any]:
    """`act`, made safe inside the script's own calls: if it raises an exception, `fails` gets it, and None is returned.

    An exception that interrupts it from outside is meant for the script and passes: one from the script's signal
    handlers, or KeyboardInterrupt.
    """

    @functools.wraps(act)
    def safe(*words: Any, **named: Any) -> Any:
        try:
            return act(*words, **named)
        except BaseException as fault:
            if not _takes(fault, fails):
                raise
            return None

    return safe


def patch_on_load(patches: Mapping[str, Sequence[Patch]]) -> None:
    """Call each patch with its module: now if the module is loaded, otherwise once it is."""
    for name in patches.keys() & sys.modules.keys():
        _patch(patches[name], sys.modules[name])
    sys.meta_path.insert(0, _Finder(patches))


class _Finder:
    """Lets Python find and run a module as usual, and then patches it."""

    def __init__(self, patches: Mapping[str, Sequence[Patch]]) -> None:
        self._patches = patches
        self.find_spec = quiet(self._find)

    def _find(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in self._patches:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None

        def loaded(module: ModuleType, _: Any, fault: BaseException | None) -> None:
            if fault is None:
                _patch(self._patches[name], module)

        wrap(spec.loader, "exec_module", lambda module: module, loaded)
        return spec


def _patch(patches: Sequence[Patch], module: ModuleType) -> None:
    for patch in patches:
        quiet(patch)(module)  # fails in a torch that has the function elsewhere; then that function is not watched


def _takes(fault: BaseException, fails: Callable[[Exception], object]) -> bool:
    """Whether this is a hook's error, which `fails` then gets. If it is meant for the script, drop Muster's frames."""
    if isinstance(fault, Exception) and not _interrupts(fault.__traceback__):
        fails(fault)
        return True
    fault.__traceback__ = _without_ours(fault.__traceback__)
    return False


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not in Muster's hooks."""
    while trace and trace.tb_frame.f_code.co_filename.startswith((_FOLDER, _SKIPPED_FILE)):
        trace = trace.tb_next
    return trace


def _interrupts(trace: TracebackType | None) -> bool:
    """Whether one of the script's signal handlers was called in the middle of a hook, and raised the exception."""
    import signal  # only here, since it is rarely needed

    handlers = [getattr(handler, "func", handler) for handler in map(signal.getsignal, signal.valid_signals())]
    codes = [getattr(each, "__code__", getattr(type(each).__call__, "__code__", None)) for each in handlers]
    while trace:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
