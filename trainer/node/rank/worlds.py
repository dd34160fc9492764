"""Notes which world this process starts or is about to join: where its ranks meet, and which command decided that.

A launcher in a shell script, or the script itself, may set up a world of its own. Then each node trains alone, or waits
where no other node comes. This is noted before anything waits; trainer/node/ending/own_world.py compares it with the
run's plan.
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
_TORCHRUN_MODULE = ".launch.torchrun"  # the process that starts a node's ranks; the processes above it are Muster's
_ANCESTORS, _WORDS_MOST, _WORD_MOST = 8, 40, 4000


def run_meeting() -> str:
    """Where the run's nodes meet, as `host:port`. Called when a process starts, before a script changes variables."""
    return _meeting("PET_MASTER_") or _meeting("MASTER_")


def of_launch(config: Any) -> dict[str, Any]:
    """The note about a torchrun that starts: its least and greatest number of nodes, its ranks, and where it meets."""
    # A node whose rank is not 0 waits for the node with rank 0, even if it was told of one node only (--nnodes=1).
    least = max(int(config.min_nodes), 1 + int(config.rdzv_configs.get("rank") or 0))
    sizes = [least, max(least, int(config.max_nodes)), int(config.nproc_per_node)]
    return {"launch": sizes, "meets": str(config.rdzv_endpoint), **code_at_work()}


def of_join(init_method: str | None, world_size: int, rank: int, store: Any, began: str) -> dict[str, Any]:
    """The note about a rank that calls init_process_group and so is about to form the group of all ranks.

    `began`: the rendezvous in its variables when the process began. In the note, `client` means a rank of torchrun,
    which never listens itself, and `taken` is the rank number that the script passes, if that is not the rank's own.
    """
    meets = meeting_of(init_method, store)
    client = meets == _meeting("MASTER_") and os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True"
    # If a rank meets where its torchrun has met, torchrun's own note is enough. Elsewhere, no store serves the rank.
    if client and meets == began:
        is_own = rank == -1 or os.environ.get("RANK") in (None, str(rank))
        return {} if is_own else {"taken": rank, "meets": meets, **code_at_work()}
    return {
        "joins": world_size if world_size > 0 else int(os.environ.get("WORLD_SIZE", "0")),
        # The rank uses the run's own variables, so it waits for the ranks of the other nodes.
        "as_run": world_size < 0 and os.environ.get("RANK") == str(slot(os.environ)["rank"]),
        "client": client,
        "meets": meets,
        **code_at_work(),
    }


def meeting_of(init_method: str | None, store: Any) -> str:
    """Where ranks meet that call init_process_group with these arguments: the same text for all of them."""
    return _address(init_method or "env://") if store is None else _store_of(store)


def _store_of(store: Any) -> str:
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    host = getattr(store, "host", "")
    return f"{host}:{store.port}" if host else str(getattr(store, "path", "") or type(store).__name__)


def code_at_work() -> dict[str, Any]:
    """Which code is at work here: the line of the script, and the commands that led to it."""
    return {"at": _place(), **command_of(os.getpid())}


def command_of(pid: int) -> dict[str, list[str]]:
    """The words of the command that led to a process, and the shell that started it: its folder and its arguments.

    Without a shell, the command is the topmost one of its rank, and the shell is empty.
    """
    command = list[str]()
    with suppress(OSError, ValueError, IndexError):
        for _ in range(_ANCESTORS):
            words = _words(pid)
            if words[0].lstrip("-").rpartition("/")[2] in _SHELLS:
                return {"command": command, "shell": [os.readlink(f"/proc/{pid}/cwd"), *words[1:]]}
            if any(word.endswith(_TORCHRUN_MODULE) for word in words):
                break
            command = words
            with open(f"/proc/{pid}/stat") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
    return {"command": command, "shell": []}


def program_of(words: Sequence[str], of_text: str = "python -c") -> str:
    """The program of a Python with these words: its script or module; `of_text` after -c; `python` if it has none."""
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
    """`host:port` for a tcp:// address and for env://; for a file, its path."""
    parts = urlsplit(url)
    # MASTER_ADDR has no brackets.
    return _meeting("MASTER_") if parts.scheme == "env" else re.sub(r"[][]", "", parts.netloc) or parts.path


def _words(pid: int) -> list[str]:
    with open(f"/proc/{pid}/cmdline", "rb") as file:
        words = file.read().decode(errors="replace").rstrip("\0").split("\0")
    return [masked(word)[:_WORD_MOST] for word in words[:_WORDS_MOST]]


def _place() -> str:
    """The innermost line of the script's own code that is being executed: `train.py:12`; empty if there is none."""
    # torch's folder is excluded by its path, since a torch that was built from source may be anywhere.
    torch = os.path.dirname(getattr(sys.modules.get("torch"), "__file__", "") or __file__)
    frame = sys._getframe(1)
    while frame.f_back:
        frame = frame.f_back
        path = os.path.abspath(frame.f_code.co_filename)
        if os.path.exists(path) and own_code.is_own(path) and not path.startswith(torch):
            own = os.path.relpath(path)
            return masked(f"{os.path.basename(path) if own.startswith('..') else own}:{frame.f_lineno}")
    return ""
