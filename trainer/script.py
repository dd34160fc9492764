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
from collections.abc import Sequence

from trainer.errors import FAILED, STOPPED
from trainer.peers import speaks_of_peers
from trainer.verdict import Verdict

_KEPT_BYTES = 64 * 1024
_LAST_LINES = 12
_LINE_MOST = 300
# The engine keeps the last 100 MB of a console and says nothing of the rest. So a line among what a script says tells
# now and then how much it was so far (docs/contract.md): whoever reads along counts, and knows what is missing.
_SAID, _SAID_EVERY = b"muster-said", 16 << 20
_LINE_WEIGHT = 75
# A process that a rank left behind may hold the console open for ever.
_REST_SECONDS = 2.0

_TORCHRUN = re.compile(r"[WEI]\d{4} \d\d:\d\d:\d\d\.\d+ .*torch/distributed/|\*{20,}$|Setting OMP_NUM_THREADS ")
_DIED = re.compile(r"failed \(exitcode: (-?\d+)\) local_rank: (\d+) \(pid: \d+\)")
_ROOT_CAUSE = re.compile(r"Root Cause.*?\n\s*rank\s*: (\d+) ", re.DOTALL)
_ERROR = re.compile(r"(?:\[rank\d+\]: *)?([A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit))(: .*)?$")


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

    def last(self) -> str:
        """The last that was said, once the process has ended."""
        for thread in self._threads:
            thread.join(_REST_SECONDS)
        with self._lock:
            return self._tail.decode(errors="replace")

    def _pass_on(self, source: int, to: int) -> None:
        whole = False
        while data := os.read(source, 1 << 16):
            with self._lock:
                self._tail = (self._tail + data)[-_KEPT_BYTES:]
                data = self._counted(data)
            view = memoryview(data)
            while view:
                view = view[os.write(to, view) :]
            whole = data.endswith(b"\n")
        with self._lock:
            last = b"%s %d\n" % (_SAID, self._said) if whole and self._due > _SAID_EVERY else b""
        os.write(to, last)

    def _counted(self, data: bytes) -> bytes:
        """`data`, behind its last whole line how much was said so far, where that is due."""
        self._said += len(data) + _LINE_WEIGHT * data.count(b"\n")
        if self._said < self._due or b"\n" not in data:
            return data
        self._due = self._said + _SAID_EVERY
        head, _, rest = data.rpartition(b"\n")
        return b"%s\n%s %d\n%s" % (head, _SAID, self._said - len(rest), rest)


def why_failed(said: str, script: str, node: str, first_rank: int) -> Verdict | None:
    """The verdict on a script that torchrun gave up on, by the console `said`; `first_rank` is the node's first.

    None where its last words are those of a victim: a peer went away, and the peer's own node knows why.
    """
    died = list(_DIED.finditer(said))
    if not died:
        return None
    code, local_rank = int(died[-1][1]), int(died[-1][2])
    root = _ROOT_CAUSE.search(said, died[-1].end())
    rank = int(root[1]) if root else first_rank + local_rank
    words = _last_words(said[: died[-1].start()])
    error = next((found for line in reversed(words) if (found := _ERROR.match(line))), None)
    if speaks_of_peers(error[0] if error and code == 1 else "") or _watchdog(code, words):
        return None
    message = f"{script} {ended_how(code)}"
    if error and code == 1:
        message += f": {error[1]}{error[2] or ''}"[:_LINE_MOST]
    shown = [f"    {line[:_LINE_MOST]}" for line in words]
    hint = f"logs/{node}.log has all that it said"
    if code == -signal.SIGKILL:
        hint = f"out of memory, if nobody killed it: `dmesg` on {node} says so"
    return Verdict("failed", FAILED, rank, node, 0, "\n".join([message, *shown]), hint)


def was_stopped(script: str, node: str, rank: int) -> Verdict:
    """The verdict on a script that was asked to stop: what it saved, it knows itself."""
    return Verdict("stopped", STOPPED, rank, node, 0, f"{script} was asked to stop")


def name_of(arguments: Sequence[str]) -> str:
    """What `--script ARGUMENTS` starts, for a sentence: train.py, or pkg.train behind -m."""
    return next((word for word in arguments if not word.startswith("-")), "the script")


def ended_how(code: int) -> str:
    """An exit code as torchrun tells it, in words."""
    try:
        return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
    except ValueError:
        return f"ended with code {code}"


def _last_words(said: str) -> list[str]:
    """The last lines before torchrun's own; a traceback from its beginning, if it is a short one."""
    lines = [line.rstrip() for line in said.splitlines()]
    kept = [line for line in lines if line and not _TORCHRUN.search(line)][-_LAST_LINES:]
    starts = [at for at, line in enumerate(kept) if "Traceback (most recent call last)" in line]
    return kept[starts[-1] :] if starts else kept


def _watchdog(code: int, words: Sequence[str]) -> bool:
    """NCCL's watchdog aborts the process when a peer is gone for too long."""
    return code == -signal.SIGABRT and any("watchdog" in line.lower() for line in words)
