"""How and when a function of the script's process is changed: by a hook of ours, once its module has run. Nowhere else.

A script must not notice a hook. So whatever is wrapped here keeps its name, signature and place in pickles, gives the
same results, and raises its own exceptions with its own traceback. A fault of a hook never reaches the script.
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
# `warnings` counts no frame of such a file, so a warning names the script's line as ever.
_UNCOUNTED = "<frozen importlib._bootstrap of muster>"
Patch = Callable[[ModuleType], None]


def _pass(_: Exception) -> None:
    """What fails is then not known."""


def wrap(
    owner: Any,
    name: str,
    before: Callable[..., Any],
    after: Callable[..., Any] | None = None,
    fails: Callable[[Exception], object] = _pass,
) -> None:
    """Call `before` as `owner.name` is called, and `after(mark, result, fault)` as it ends; both as `quiet` has it.

    `mark` is what `before` returns; if that is None, the call is not watched, and `after` is not called.
    """
    real = getattr(owner, name)

    def call(*words: Any, **named: Any) -> Any:
        try:
            mark: Any = None
            try:  # as `quiet` does; a call less counts here
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
            raise  # without a value: so Python adds this frame no second time

    call.__code__ = call.__code__.replace(co_filename=_UNCOUNTED, co_name=getattr(real, "__name__", name))
    functools.update_wrapper(call, real)
    call._torchdynamo_inline = real  # type: ignore[attr-defined]  # what torch.compile looks into instead
    with suppress(Exception):  # some builtin functions have no signature
        if not hasattr(real, "__wrapped__"):  # what is a wrapper already has its own words for it
            call.__signature__ = sys.modules["inspect"].signature(real)  # type: ignore[attr-defined]
    setattr(owner, name, call)
    if isinstance(owner, ModuleType):
        _replace(name, real, call)


def _replace(name: str, real: Any, call: Any) -> None:
    """Put the wrapper where others have taken the function from its module; a forked rank has all of torch loaded."""
    for module in list(sys.modules.values()):
        names = getattr(module, "__dict__", {})
        if names.get(name) is real:
            names[name] = call
    register = getattr(sys.modules.get("torch.jit._builtins"), "_register_builtin", None)
    if register and (real.__module__, name) == ("torch.autograd", "backward"):
        register(call, "aten::backward")


def quiet(act: Callable[..., Any], fails: Callable[[Exception], object] = _pass) -> Callable[..., Any]:
    """`act`, for a place inside the script's own calls: where it fails, `fails` hears of it, and None is returned.

    What interrupts it is meant for the script: an exception of one of its signal handlers, or KeyboardInterrupt.
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
    """Call each patch with its module: now if that is loaded, else once it is."""
    for name in patches.keys() & sys.modules.keys():
        _patch(patches[name], sys.modules[name])
    sys.meta_path.insert(0, _Finder(patches))


class _Finder:
    """Lets a module be found and run as ever, and then patches it."""

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
        quiet(patch)(module)  # in a torch that has it elsewhere it is not known


def _takes(fault: BaseException, fails: Callable[[Exception], object]) -> bool:
    """Whether it is a fault of ours, which `fails` then hears of; one that is meant for the script loses our frames."""
    if isinstance(fault, Exception) and not _interrupts(fault.__traceback__):
        fails(fault)
        return True
    fault.__traceback__ = _without_ours(fault.__traceback__)
    return False


def _without_ours(trace: TracebackType | None) -> TracebackType | None:
    """The traceback from the first frame on that is not ours."""
    while trace and trace.tb_frame.f_code.co_filename.startswith((_FOLDER, _UNCOUNTED)):
        trace = trace.tb_next
    return trace


def _interrupts(trace: TracebackType | None) -> bool:
    """Whether a signal handler of the script's was called in the middle of our code, and raised."""
    import signal  # only then is it worth its import

    handlers = [getattr(handler, "func", handler) for handler in map(signal.getsignal, signal.valid_signals())]
    codes = [getattr(each, "__code__", getattr(type(each).__call__, "__code__", None)) for each in handlers]
    while trace:
        if trace.tb_frame.f_code in codes:
            return True
        trace = trace.tb_next
    return False
