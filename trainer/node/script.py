"""A script of the user's under torchrun: its words passed on as they come, and why it failed, in a verdict.

torchrun's own summary ends with `error_file: <N/A>` unless the script was written for it. What the user needs is what
the rank that failed first said last. The agent (agent.py) starts and ends all this. Standard library only.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import threading
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass

from muster.errors import FAILED, STOPPED

from ..verdict import Verdict
from .ends import Life
from .peer_errors import lost_a_peer, speaks_of_peers

_KEPT_BYTES = 64 * 1024
_LAST_LINES = 12
# An abort of NCCL's watchdog is followed by a stack of C++ frames.
_ABORT_LINES = 80
LINE_MOST = 300
# The engine keeps the last 100 MB of a console and says nothing of the rest. So a line among what a script says tells
# now and then how much it was so far (docs/contract.md): whoever reads along counts, and knows what is missing.
_SAID, _SAID_EVERY = b"muster-said", 16 << 20
_LINE_WEIGHT = 75
# A process that a rank left behind may hold the console open for ever.
_REST_SECONDS = 2.0

_TORCHRUN = re.compile(r"[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ .*torch/distributed/|\*{20,}$|Setting OMP_NUM_THREADS ")
# The line in which torchrun says that a rank failed; what follows is about torchrun.
_DIED = re.compile(r"^.*failed \(exitcode: -?\d+\) local_rank: \d+ \(pid: (\d+)\)", re.MULTILINE)
# torch's own mark before a rank's traceback, once the rank has joined a process group.
_SPEAKER = re.compile(r"\[rank(\d+)\]: ?")
_TRACEBACK = "Traceback (most recent call last)"
_LINKS = ("During handling of the above exception", "The above exception was the direct cause")
_ERROR = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)(: .*)?$")


class Consoles:
    """Passes what a process prints on to our own output and error, and remembers the last of it."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._tail, self._lock = b"", threading.Lock()
        self._said, self._due = 0, _SAID_EVERY
        pipes = ((process.stdout, 1), (process.stderr, 2))
        self._threads = [
            threading.Thread(target=self._pass_on, args=(pipe.fileno(), to), daemon=True) for pipe, to in pipes if pipe
        ]
        for thread in self._threads:
            thread.start()

    def finish(self) -> None:
        """Pass on the last that was said, once the process has ended."""
        for thread in self._threads:
            thread.join(_REST_SECONDS)

    def so_far(self) -> str:
        """The last 64 KB of what was said until now."""
        with self._lock:
            return self._tail.decode(errors="replace")

    def _pass_on(self, source: int, to: int) -> None:
        whole = False
        while data := os.read(source, 1 << 16):
            with self._lock:
                self._tail = (self._tail + data)[-_KEPT_BYTES:]
                data = self._counted(data)
            _write(to, data)
            whole = data.endswith(b"\n")
        with self._lock:
            last = b"%s %d\n" % (_SAID, self._said) if whole and self._due > _SAID_EVERY else b""
        _write(to, last)

    def _counted(self, data: bytes) -> bytes:
        """`data`, behind its last whole line how much was said so far, where that is due."""
        self._said += len(data) + _LINE_WEIGHT * data.count(b"\n")
        if self._said < self._due or b"\n" not in data:
            return data
        self._due = self._said + _SAID_EVERY
        head, _, rest = data.rpartition(b"\n")
        return b"%s\n%s %d\n%s" % (head, _SAID, self._said - len(rest), rest)


def _write(to: int, data: bytes) -> None:
    """All of `data`. Where the console is on a full disk it is lost: the ranks must not wait for us for that."""
    with suppress(OSError):
        view = memoryview(data)
        while view:
            view = view[os.write(to, view) :]


def why_failed(said: Said, how: str, script: str, node: str, life: Life) -> Verdict:
    """The verdict on a script whose rank `life` failed first on this node: `how`, with these last words."""
    message = f"{script} {how}"
    if said.error and life.code == FAILED:
        message += f": {said.error}"[:LINE_MOST]
    shown = [f"    {line[:LINE_MOST]}" for line in said.words]
    hint = f"logs/{node}.log has all that it said"
    return Verdict("failed", FAILED, life.rank, node, 0, "\n".join([message, *shown]), hint, life.ended)


@dataclass(frozen=True)
class Said:
    """A rank's last words, the error in them, and whether that is a victim's: a peer went away, which knows why."""

    words: tuple[str, ...] = ()
    error: str = ""
    victim: bool = False


def listen(console: str, life: Life, pids: Collection[int]) -> Said:
    """What the rank `life` said last on its node's `console`; `pids` are those of all ranks that began with it.

    What other ranks of the node say there is left out, as far as torch marks whose words they are.
    """
    lines = [line.rstrip() for line in _of_attempt(console, pids).splitlines()]
    lines = [line for line in lines if line and not _TORCHRUN.search(line) and _speaker(line) in (None, life.rank)]
    if any(_speaker(line) == life.rank for line in lines[-_LAST_LINES:]):
        lines = [line for line in lines if _speaker(line) == life.rank]
    bare = [_SPEAKER.sub("", line) for line in lines]
    errors = _chain(bare)
    told = [line for line in bare[-_ABORT_LINES:] if speaks_of_peers(line)]
    if life.code == FAILED:
        victim = bool(errors) and lost_a_peer(errors[0])
    else:  # NCCL's watchdog and an exception in gloo's own thread abort the process
        victim = life.code == -signal.SIGABRT and bool(told)
        errors = told[:1] if victim else errors
    kept = lines[-_LAST_LINES:]
    starts = [at for at, line in enumerate(kept) if _TRACEBACK in line]
    last = errors[-1].splitlines()[0] if errors else ""
    if not _ERROR.match(last):  # output and errors come through two pipes: a line of the one may break a traceback
        last = next(filter(_ERROR.match, reversed(bare[-_LAST_LINES:])), last)
    return Said(tuple(kept[starts[-1] :] if starts else kept), last, victim)


def _of_attempt(console: str, pids: Collection[int]) -> str:
    """What was said since torchrun told of an earlier attempt's failure, and before it told of this one's."""
    died = list(_DIED.finditer(console))
    start = max((found.end() for found in died if int(found[1]) not in pids), default=0)
    end = min((found.start() for found in died if found.start() >= start), default=len(console))
    return console[start:end]


def _chain(lines: Sequence[str]) -> list[str]:
    """The errors of the last traceback and of those it came from, the first cause first; each with all its lines."""
    found: list[list[str]] = []
    linked = inside = False
    for line in lines:
        if _TRACEBACK in line:
            found = [*found, []] if linked else [[]]
            linked, inside = False, True
        elif line.startswith(_LINKS):
            linked, inside = True, False
        elif inside and (found[-1] or not line.startswith(" ")):
            found[-1].append(line)
    return ["\n".join(error) for error in found if error]


def _speaker(line: str) -> int | None:
    found = _SPEAKER.match(line)
    return int(found[1]) if found else None


def was_stopped(script: str, node: str, rank: int) -> Verdict:
    """The verdict on a script that was asked to stop: what it saved, it knows itself."""
    return Verdict("stopped", STOPPED, rank, node, 0, f"{script} was asked to stop")


def name_of(arguments: Sequence[str]) -> str:
    """What `--script ARGUMENTS` starts, for a sentence: train.py, or pkg.train behind -m."""
    return next((word for word in arguments if not word.startswith("-")), "the script")
