"""Run by Python itself as it starts, in each process below a rank: notes who trained with whom, and has it watched.

A script that trains alone on every host ends as well as one that trains with all. What tells them apart is noted in
MUSTER_OUTCOME_DIR/together.jsonl: each process group that is formed, that an optimizer stepped, that one still steps a
while later, and that anything went through a group. The agent reads it meanwhile and at the end (trainer/node/
training_alone.py). Nothing of ours may be imported here: a script may have a module named `trainer`. What watches the
script's numbers and stacks (trainer/watch/) is therefore loaded by its place, under another name.
"""

from __future__ import annotations

import atexit
import importlib.machinery
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from types import ModuleType
from typing import Any

_NAME, _WATCHER = "together.jsonl", "_muster_watch"
_WATCH = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "watch")
# NCCL counts what one rank sends to another apart: there it is unknown whether anything was sent.
_GPUS = ("/dev/nvidiactl", "/dev/kfd")
_OTHER_MEANS = {"horovod.torch", "mpi4py.MPI", "byteps.torch", "hivemind", "ray"}
# A script may train a little for itself first, and then join the others.
_LASTING_SECONDS = 20.0
# How ranks are joined depends on which of these trains.
_FRAMEWORKS = ("lightning", "pytorch_lightning", "lightning_fabric", "accelerate")


def watch() -> None:
    """From now on, in this process and those that it forks, have torch note what it forms and steps."""
    _try(_load_watcher)
    for name, patches in _PATCHES.items():
        for patch in patches if name in sys.modules else ():
            _try(patch, sys.modules[name])
    sys.meta_path.insert(0, _Finder())


def _load_watcher() -> None:
    """Have the script watched, unless its user has switched that off."""
    if os.environ.get("MUSTER_OBSERVE") == "0":
        return
    spec = importlib.util.spec_from_file_location(
        _WATCHER, os.path.join(_WATCH, "__init__.py"), submodule_search_locations=[_WATCH]
    )
    if spec and spec.loader:
        sys.modules[_WATCHER] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        for name, patch in importlib.import_module(f"{_WATCHER}.begin").begin().items():
            _PATCHES.setdefault(name, []).append(patch)


def _note(**fields: Any) -> None:
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT") or os.environ.get("MUSTER_ATTEMPT", "0")
    place = {"rank": int(os.environ.get("RANK", "0")), "attempt": int(attempt)}
    line = json.dumps({**place, **fields}) + "\n"
    path = os.path.join(os.environ["MUSTER_OUTCOME_DIR"], _NAME)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def _groups(module: ModuleType) -> None:
    form: Callable[..., Any] = module._new_process_group_helper
    noted = set()

    def noting(size: int, rank: int, *more: Any, **others: Any) -> Any:
        if (size, rank) not in noted and rank >= 0:
            noted.add((size, rank))
            _try(_note, size=size, member=rank)
        return form(size, rank, *more, **others)

    destroy: Callable[..., Any] = module.destroy_process_group

    def destroying(*words: Any, **named: Any) -> Any:
        _try(_note_sent)
        return destroy(*words, **named)

    module._new_process_group_helper = noting  # type: ignore[attr-defined]
    # A rank that was forked with torch loaded has it under both names already.
    for place in (module, sys.modules.get("torch.distributed")):
        if getattr(place, "destroy_process_group", None) is destroy:
            place.destroy_process_group = destroying  # type: ignore[union-attr]
    atexit.register(_try, _note_sent)


def _steps(module: ModuleType) -> None:
    noted = list[float]()

    def stepped(*_: Any) -> None:
        if not noted:  # the hook stays: to take it away here breaks torch's loop over all such hooks
            noted.append(time.monotonic())
            _try(_note_stepped)
        elif len(noted) == 1 and time.monotonic() - noted[0] >= _LASTING_SECONDS:
            noted.append(time.monotonic())
            _try(_note_stepped, lasting=True)
        if not _sent:
            _try(_note_sent)

    module.register_optimizer_step_post_hook(stepped)


def _note_stepped(**more: Any) -> None:
    loaded = [name for name in _FRAMEWORKS if name in sys.modules]
    _note(stepped=True, otherwise=_otherwise(), loaded=loaded, **more)


_sent = list[bool]()


def _note_sent() -> None:
    """Note, once, that something went through a process group, or that this is unknown."""
    if not _sent and _has_sent():
        _sent.append(True)
        _note(sent=True)


def _has_sent() -> bool:
    if any(map(os.path.exists, _GPUS)):
        return True
    try:
        groups = list(sys.modules["torch.distributed.distributed_c10d"]._world.pg_map)
        return any(group._get_sequence_number_for_group() > 0 for group in groups)
    except Exception:  # a torch that has it elsewhere, a backend that does not count
        return True


def _otherwise() -> bool:
    """Whether ranks may be together by other means than a process group of torch's."""
    rpc = sys.modules.get("torch.distributed.rpc.api")
    return bool(_OTHER_MEANS & sys.modules.keys()) or bool(rpc and rpc._is_current_rpc_agent_set())


def _leave_out(module: ModuleType) -> None:
    """torch.compile shall not look into what is done here, nor speak of it: as with torch's own files."""
    module.SKIP_DIRS.extend(folder + os.sep for folder in (os.path.dirname(os.path.abspath(__file__)), _WATCH))
    module._recompile_re()


_PATCHES: dict[str, list[Callable[[ModuleType], None]]] = {
    "torch._dynamo.trace_rules": [_leave_out],
    "torch.distributed.distributed_c10d": [_groups],
    "torch.optim.optimizer": [_steps],
}


def _try(act: Callable[..., Any], *words: Any, **fields: Any) -> None:
    with suppress(Exception):  # a torch that has it elsewhere, a full disk: then it is not known
        act(*words, **fields)


class _Finder:
    """Lets a module be found and run as ever, and then patches it."""

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name not in _PATCHES:
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path)
        if spec is None or spec.loader is None:
            return None
        run = spec.loader.exec_module

        def run_and_patch(module: ModuleType) -> None:
            run(module)
            for patch in _PATCHES[name]:
                _try(patch, module)

        spec.loader.exec_module = run_and_patch  # type: ignore[method-assign]
        return spec


def _others() -> None:
    """Run the sitecustomize that this one stands before: a system may have its own."""
    mine = os.path.dirname(os.path.abspath(__file__))
    places = [place for place in sys.path if os.path.abspath(place) != mine]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", places)
    if spec and spec.loader:
        sys.modules["sitecustomize"] = module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)


if __name__ == "sitecustomize":
    if "MUSTER_OUTCOME_DIR" in os.environ and os.environ.keys() & {"RANK", "MUSTER_LIFE"}:
        _try(watch)
    _others()
