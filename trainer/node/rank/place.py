"""The rank in torchrun's variables, its events, and the claim that lets only one of its processes report them."""

from __future__ import annotations

import fcntl
import json
import os
import re
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple

FIRST_RANK = "MUSTER_FIRST_RANK"
# The same name as in muster/reserve.py.
JOURNAL = "journal.jsonl"
_DISTRIBUTED = "torch.distributed"
# How much of the end of an event file is searched for the last step, and how `event` writes a step.
_LAST_BYTES = 256 * 1024
_STEP = re.compile(rb'"kind": "step", "step": (\d{1,15}),')
_OWN, _BEGAN = b'"own": true,', b'"kind": "began",'
_STARTED = re.compile(rb'"kind": "started", "attempt": (\d{1,9}),')


def in_run(rank: int) -> int:
    """The number of a rank in the whole run: the ranks of a role are numbered after those of the roles before it."""
    return rank + int(os.environ.get(FIRST_RANK) or 0)


class Before(NamedTuple):
    """What a rank reported before this process: its last `step`, and whether its optimizer's count agreed (`own`).

    `another`: another program reported that step in this start, for example because a shell script trains twice.
    """

    step: int = 0
    own: bool = False
    another: bool = False


def slot(environment: Mapping[str, str]) -> dict[str, int]:
    """Which of torchrun's ranks this process belongs to, and in which attempt; a launcher numbers its ranks itself."""
    rank, attempt, *_ = [*environment.get("MUSTER_LIFE", "").split("-"), ""]
    if not (rank.isdecimal() and attempt.isdecimal()):
        rank, attempt = environment["RANK"], environment.get("TORCHELASTIC_RESTART_COUNT", "0")
    return {"rank": int(rank), "attempt": int(attempt)}


class Place:
    """The rank as torchrun's variables number it; after `world`, as its process group numbers it."""

    def __init__(self) -> None:
        env = os.environ
        self.outcome, self.run = env["MUSTER_OUTCOME_DIR"], env.get("MUSTER_RUN_DIR", "")
        # A run's only rank may have none of torchrun's variables (trainer/node/launch/bare.py).
        self.rank, self.local = int(env.get("RANK", "0")), int(env.get("LOCAL_RANK", "0"))
        self.attempt = int(env.get("TORCHELASTIC_RESTART_COUNT") or slot({"RANK": "0", **env})["attempt"])
        self.life = env.get("MUSTER_LIFE", str(self.attempt))
        self.node = env.get("MUSTER_NODE", "")

    def world(self) -> tuple[int, str]:
        """How many ranks train together, and their backend, from torch; also takes this rank's number from there."""
        torch = sys.modules.get(_DISTRIBUTED)
        if torch and torch.is_available() and torch.is_initialized():
            self.rank = int(torch.get_rank())
            return int(torch.get_world_size()), _backend(torch)
        self.rank = int(os.environ.get("RANK", "0"))  # a script that starts ranks itself sets it later
        return int(os.environ.get("WORLD_SIZE", "1")), ""

    def claim(self, what: str) -> bool:
        """Claim the part `what` in this life of the rank; False if a living process has it, or the disk is full.

        The lock ends with the process, so several programs that run one after the other can each claim the same part.
        """
        try:
            # The script may have put a link or a pipe there; opening it must not block.
            descriptor = os.open(self._note(what), os.O_WRONLY | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK, 0o644)
        except OSError:
            return False
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(descriptor)
            return False
        return True

    def any_was_claimed(self, start: str) -> bool:
        """Whether a process on this node has claimed any part whose name begins with `start`."""
        with suppress(OSError):
            return any(name.startswith(f".{start}") for name in os.listdir(self.outcome))
        return True

    def _note(self, what: str) -> str:
        return os.path.join(self.outcome, f".{what}.{self.life}")

    def steps_before(self) -> Before:
        """What this rank reported in earlier starts of the run, or in this start before this program.

        Reports of another node in this start do not count: if each node trains in a world of its own, each has a rank
        with this number.
        """
        node, this_start, step = f'"node": {json.dumps(self.node)}'.encode(), True, Before()
        with suppress(OSError, ValueError), open(self._events(), "rb") as file:
            file.seek(max(0, os.path.getsize(self._events()) - _LAST_BYTES))
            for line in reversed(file.read().split(b"\n")):
                started = _STARTED.search(line)
                if step.another and started:  # a launcher below torchrun counts its own restarts
                    return Before(step.step, step.own, int(started[1]) >= self.attempt)
                this_start = this_start and _BEGAN not in line
                if step.another and not this_start:
                    break
                if not step.step and (match := _STEP.search(line)) and not (this_start and node not in line):
                    step = Before(int(match[1]), _OWN in line, this_start)
                    if not this_start:
                        break
        return step

    def may_be_of_run(self, source: Any) -> bool:
        """Whether the file `source` may have been written since the run began, which the rank's first event shows."""
        if not isinstance(source, (str, os.PathLike)):
            return True
        try:
            with open(self._events(), "rb") as file:
                first = json.loads(file.readline(_LAST_BYTES))
            return bool(os.stat(source).st_mtime >= first["t"] - 1)
        except (OSError, ValueError, LookupError, TypeError):
            return True

    def _events(self) -> str:
        # With --min-nodes, ranks change their numbers when a node is lost, but the files of a host keep theirs.
        first = os.environ.get("MUSTER_FIRST_RANK_FILE")
        number = in_run(self.rank) if first is None else int(first) + self.local
        return os.path.join(self.run, "ranks", f"rank-{number}.jsonl")

    def event(self, kind: str, **fields: Any) -> None:
        """Append an event of this rank, in the form of contract.md. Raises OSError."""
        line = {"t": round(time.time(), 3), "kind": kind, **fields, "rank": in_run(self.rank), "node": self.node}
        os.makedirs(os.path.dirname(self._events()), exist_ok=True)
        append(self._events(), line)


def _backend(torch: Any) -> str:
    """The backend of the group of all ranks, as users name it; if none was chosen, there is one per device type."""
    name = str(torch.get_backend())
    if name != "undefined":
        return name
    config = str(torch.get_backend_config())  # `cpu:gloo,cuda:nccl`
    return ", ".join(dict.fromkeys(part.partition(":")[2] for part in config.split(",")))


def append(path: str, line: dict[str, Any]) -> int:
    """Append `line` to a file of JSON lines; returns the file's size after that. Raises OSError.

    The file is opened each time, so that this works again after the file was moved or the host's disk was full. After a
    line that was cut, the new one begins on a line of its own.
    """
    with open(path, "a+b", buffering=0, opener=partial(os.open, mode=0o644)) as file:
        end = file.seek(0, os.SEEK_END)
        is_cut = end > 0 and os.pread(file.fileno(), 1, end - 1) != b"\n"
        data = ("\n" * is_cut + json.dumps(line) + "\n").encode()
        if file.write(data) < len(data):
            raise OSError(f"{path} takes no whole line")
        return file.tell()


def note(outcome: str, **row: Any) -> None:
    """Append a row to the journal of this node. Raises OSError."""
    append(os.path.join(outcome, JOURNAL), row)
