"""Notes which ranks train together, by torch or by other means (Horovod, MPI, Ray).

A script that trains alone on every host ends just like one that trains on all hosts together. The facts that tell them
apart are noted in the node's journal: a launcher that the script starts, the process group that a rank is about to
join and has joined (worlds.py), that an optimizer stepped, that one still steps a while later, and that anything was
sent through a group. The agent reads these notes during the run and at its end (node/ending/training_alone.py).
"""

from __future__ import annotations

import atexit
import os
import re
import sys
import time
from contextlib import suppress
from types import ModuleType
from typing import Any

from . import end_note, hooks, own_code, worlds
from .place import note, slot

_DISTRIBUTED = "torch.distributed.distributed_c10d"
# NCCL counts messages between two ranks separately, so with GPUs it is unknown whether anything was sent.
_GPUS = ("/dev/nvidiactl", "/dev/kfd")
_OTHER_MEANS = {"horovod.torch", "mpi4py.MPI", "byteps.torch", "hivemind", "ray"}
# A script may first train a little by itself, and join the other ranks later. These many steps in these seconds are
# enough if none of its code mentions other ranks.
_LASTING_SECONDS, _SURE_SECONDS, _SURE_STEPS = 20.0, 3.0, 20
_OF_OTHER_RANKS = re.compile(rb"distributed|process_group|accelerate|deepspeed|lightning|horovod")
_IMPORTED = re.compile(rb"^[ \t]*(?:from[ \t]+\.*(\w[\w.]*)[ \t]+import\b|import[ \t]+([\w., \t]+))", re.MULTILINE)
_SOURCE_MOST = 1 << 20  # bytes that are read of each file of the script
_NEVER = float("inf")
# The way to join ranks depends on which of these frameworks trains.
_FRAMEWORKS = ("lightning", "pytorch_lightning", "lightning_fabric", "accelerate")


def patches() -> dict[str, hooks.Patch]:
    """The patch for each module, by the module's name, which is applied once the module has been loaded."""
    _given[:] = [worlds.run_meeting(), worlds.meeting_of(None, None)]
    return {_DISTRIBUTED: _groups, "torch.optim.optimizer": _steps, "torch.distributed.launcher.api": _launches}


# How this process ends (end_note.py): begin.py puts it here.
ends = list[end_note.End]()


def _note(**fields: Any) -> None:
    for end in ends:
        # A process trains if it steps or has peers. A group of one rank alone may belong to a helper.
        fields |= end.begins() if fields.get("stepped") or fields.get("size", 0) > 1 else {}
        fields |= {"life": end.life, "process": end.name}
    note(os.environ["MUSTER_OUTCOME_DIR"], **{"t": time.time(), **slot(os.environ), "pid": os.getpid(), **fields})


def _groups(module: ModuleType) -> None:
    """Watch how the group of all ranks is formed. Other groups have only some of the ranks, and show nothing more."""
    noted = set[tuple[int, int, str]]()

    # The parameters are torch's own; those after `store`, and other named ones, do not matter here.
    def begins(
        _: Any = None,
        init_method: str | None = None,
        __: Any = None,
        world_size: int = -1,
        rank: int = -1,
        store: Any = None,
        *more: Any,
        **named: Any,
    ) -> str:
        if about := worlds.of_join(init_method, world_size, rank, store, _given[1]):
            _note(given=_given[0], **about)
        return worlds.meeting_of(init_method, store)

    def formed(meets: str, _: Any, fault: BaseException | None) -> None:
        if fault is not None:
            return
        size, member = module.get_world_size(), module.get_rank()
        if (size, member, meets) not in noted:
            noted.add((size, member, meets))
            _note(size=size, member=member, store=meets, **worlds.code_at_work())

    hooks.wrap(module, "init_process_group", begins, formed)
    hooks.wrap(module, "destroy_process_group", _note_sent)
    atexit.register(hooks.quiet(_note_sent))


def _launches(module: ModuleType) -> None:
    """Watch for a torchrun that the script itself starts."""
    hooks.wrap(module, "launch_agent", lambda config, *_, **__: _note(given=_given[0], **worlds.of_launch(config)))


def _steps(module: ModuleType) -> None:
    count, lasts_at = 0, 0.0

    def stepped(*_: Any) -> None:
        nonlocal count, lasts_at
        for end in ends:
            end.steps()
        count += 1
        if count == 1:  # the hook is not removed: that would break torch's loop over all such hooks
            lasts_at = time.monotonic() + _LASTING_SECONDS
            _note_stepped()
        elif count == _SURE_STEPS and not _may_join():
            lasts_at += _SURE_SECONDS - _LASTING_SECONDS
        if time.monotonic() >= lasts_at:
            lasts_at = _NEVER
            _note_stepped(lasting=True)
        if not _sent:
            _note_sent()

    def forked() -> None:
        nonlocal count
        count = 0

    module.register_optimizer_step_post_hook(hooks.quiet(stepped))
    os.register_at_fork(after_in_child=forked)


def _may_join() -> bool:
    """Whether the script's own code mentions other ranks or a library that joins ranks, or imports more code later."""
    # Attributes are not asked for: a lazy module may import others for that.
    paths = [vars(module).get("__file__") for module in list(sys.modules.values()) if isinstance(module, ModuleType)]
    own = [str(path) for path in paths if str(path).endswith(".py") and own_code.is_own(os.path.abspath(str(path)))]
    # If the script is no file (`python -c`), this fails, and nobody is sure (hooks.quiet).
    for path in {vars(sys.modules["__main__"])["__file__"], *own}:
        with open(path, "rb") as file:
            source = file.read(_SOURCE_MOST)
        if _OF_OTHER_RANKS.search(source) or not all(map(_is_loaded, _imported(source))):
            return True
    return False


def _imported(source: bytes) -> list[str]:
    """The modules that this source imports anywhere, a relative one without its dots."""
    rows = [first or rest for first, rest in _IMPORTED.findall(source)]
    return [words.split()[0].decode() for words in b",".join(rows).split(b",") if words.strip()]


def _is_loaded(name: str) -> bool:
    return any(f".{module}".endswith(f".{name}") for module in list(sys.modules))


def _note_stepped(**more: Any) -> None:
    loaded = [name for name in _FRAMEWORKS if name in sys.modules]
    _note(stepped=True, otherwise=_otherwise(), loaded=loaded, **more)


_given = list[str]()
_sent = list[bool]()


def _note_sent(*_: Any, **__: Any) -> None:
    """Note, once, that something was sent through a process group, or that this is unknown."""
    if not _sent and _has_sent():
        _sent.append(True)
        _note(sent=True)


def _has_sent() -> bool:
    if any(map(os.path.exists, _GPUS)):
        return True
    try:
        groups = list(sys.modules[_DISTRIBUTED]._world.pg_map)
        return any(group._get_sequence_number_for_group() > 0 for group in groups)
    except Exception:  # another version of torch, or a backend that does not count
        return True


def _otherwise() -> bool:
    """Whether ranks may train together by other means than torch's process groups."""
    if _OTHER_MEANS & sys.modules.keys():
        return True
    with suppress(Exception):  # the script uses no RPC, or this torch has none
        return bool(sys.modules["torch.distributed.rpc"].get_worker_info())
    return False
