"""Notes which world this process starts, or is about to join: where it meets the others, and whose command said so.

A launcher in a shell script, or a script itself, may bring a world of its own. Then each node trains alone, or waits
where nobody comes. This is noted before anything waits; trainer/node/ending/own_world.py compares it with the plan.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from urllib.parse import urlsplit

from . import own_code
from .failure import masked
from .place import slot

_SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "busybox")
_OF_NODE = ".launch.torchrun"  # the process that starts the ranks of a node: what stands above it is Muster's
_ANCESTORS, _WORDS_MOST, _WORD_MOST = 8, 40, 4000


def given() -> str:
    """Where the run's own nodes meet, as `host:port`: before a script says something else, so at a process's start."""
    return _meeting("PET_MASTER_") or _meeting("MASTER_")


def of_launch(config: Any) -> dict[str, Any]:
    """What is to be noted of a torchrun that starts: the least and the most of its nodes, its ranks, where it meets."""
    # A node of another rank than 0 waits for that one, even where it was told of one node only (--nnodes=1).
    least = max(int(config.min_nodes), 1 + int(config.rdzv_configs.get("rank") or 0))
    sizes = [least, max(least, int(config.max_nodes)), int(config.nproc_per_node)]
    return {"launch": sizes, "meets": str(config.rdzv_endpoint), **whose()}


def of_join(init_method: str | None, world_size: int, rank: int, store: Any, began: str) -> dict[str, Any]:
    """What is to be noted of a rank that is about to form a group of all, as it calls init_process_group.

    `began`: where its variables let it meet when the process began. `client`: a rank of torchrun, which never listens.
    `taken`: the place that it gives itself among all ranks, where that is not the one that it has.
    """
    meets = meeting_of(init_method, store)
    client = meets == _meeting("MASTER_") and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    # A rank meets where its torchrun has met: what that one noted says it. Elsewhere nobody serves it.
    if client and meets == began:
        is_own = rank == -1 or os.environ.get("RANK") in (None, str(rank))
        return {} if is_own else {"taken": rank, "meets": meets, **whose()}
    return {
        "joins": world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "0")),
        # By the run's own variables this is the rank of its node: it waits for those of the others.
        "as_run": world_size < 0 and os.environ.get("RANK") == str(slot(os.environ)["rank"]),
        "client": client,
        "meets": meets,
        **whose(),
    }


def meeting_of(init_method: str | None, store: Any) -> str:
    """Where the ranks meet that call init_process_group with this: the same for all of them."""
    return _address(init_method or "env://") if store is None else _store_of(store)


def _store_of(store: Any) -> str:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", "")
    return f"{host}:{store.port}" if host else str(getattr(store, "path", "") or type(store).__name__)


def whose() -> dict[str, Any]:
    """Who is at work here: the line of the script, and the commands that led to it."""
    return {"at": _place(), **command_of(os.getpid())}


def command_of(pid: int) -> dict[str, list[str]]:
    """The words of the command that led to a process, and those behind the shell that started it, its folder first.

    Without a shell the command is the topmost one of its rank, and the shell is empty.
    """
    command = list[str]()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_ANCESTORS):
            words = _words(pid)
            if words[0].lstrip("-").rpartition("/")[2] in _SHELLS:
                return {"command": command, "shell": [os.readlink(f"/proc/{pid}/cwd"), *words[1:]]}
            if any(word.endswith(_OF_NODE) for word in words):
                break
            command = words
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
    return {"command": command, "shell": []}


def program_of(words: Sequence[str], of_text: str = "python -c") -> str:
    """The program of a Python with these words: its script or module; `of_text` behind -c, `python` without any."""
    named = (at for at, word in enumerate(words) if at and (not word.startswith("-") or word in ("-m", "-c")))
    match list(words[next(named, len(words)) :]):
        case ["-c", *_]:
            return of_text
        case ["-m", module, *_]:
            return module
        case [script, *_]:
            return script
    return "python"


def _meeting(names: str) -> str:
    address = os.environ.get(f"{names}ADDR")
    return f"{address}:{os.environ.get(f'{names}PORT', '')}" if address else ""


def _address(url: str) -> str:
    """`host:port` of a tcp:// address and of env://; the address itself of a file."""
    parts = urlsplit(url)
    # MASTER_ADDR has no brackets.
    return _meeting("MASTER_") if parts.scheme == "env" else re.sub(r"[][]", "", parts.netloc) or parts.path


def _words(pid: int) -> list[str]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").rstrip("\0").split("\0")
    return [masked(word)[:_WORD_MOST] for word in words[:_WORDS_MOST]]


def _place() -> str:
    """The innermost line of the script's own that is being executed: `train.py:12`; empty if there is none."""
    # One that was built from source may be anywhere.
    torch = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", "") or __file__)
    frame = sys._getframe(1)
    while frame.f_back:
        frame = frame.f_back
        path = os.path.abspath(frame.f_code.co_filename)
        if os.path.exists(path) and own_code.is_own(path) and not path.startswith(torch):
            own = os.path.relpath(path)
            return masked(f"{os.path.basename(path) if own.startswith('..') else own}:{frame.f_lineno}")
    return ""
