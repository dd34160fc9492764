"""A container's life: start it, watch it, keep its output, restart it by its policy, and end all of its processes.

One process, the keeper, does this. If the keeper is killed, the kernel kills the container's first process, and the
next command that looks at the container ends the rest.
"""

from __future__ import annotations

import fcntl
import io
import os
import re
import selectors
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import suppress

from . import processes
from .store import RUNS, Any, Container, Refused, ended, now, remove, write

_PIECE, _LONGEST, _LOG_BYTES = 1 << 16, 16 << 10, 50_000_000
_STARTED = "ok"
_PAUSE_S, _MOST_PAUSE_S, _DRAIN_S, _NOTE_S, _WAIT_S = 0.1, 60.0, 1.0, 2.0, 10.0


class Log:
    """A container's log. Each line has a time, the stream (1 or 2), E or C (C: the text continues), and the text."""

    def __init__(self, container: Container) -> None:
        self._path = f"{container.folder}/log"
        self._file = io.FileIO(self._path, "ab")
        self._rest = {1: b"", 2: b""}

    def feed(self, stream: int, data: bytes) -> None:
        """Add what a stream has written."""
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        for line in lines:
            self._write(stream, b"E", line)
        while len(rest) >= _LONGEST:
            self._write(stream, b"C", rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest[stream] = rest

    def end(self) -> None:
        """Write the last lines that did not end with a newline."""
        for stream, rest in self._rest.items():
            if rest:
                self.feed(stream, b"\n")

    def _write(self, stream: int, kind: bytes, text: bytes) -> None:
        with suppress(OSError):  # on a full disk, only log lines are lost
            self._file.write(b"%s %d %s %s\n" % (now().encode(), stream, kind, text))
            if self._file.tell() > _LOG_BYTES:
                with suppress(FileNotFoundError):  # no room for another file: the log continues in this one
                    os.replace(self._path, f"{self._path}.1")
                self._file = io.FileIO(self._path, "ab")


def words_of(container: Container) -> list[str]:
    """A container's command, word by word."""
    return [*container.config["Entrypoint"], *container.config["Cmd"]]


def start(container: Container) -> None:
    """Start a container with a keeper of its own. Returns once its first process runs. Raises Refused."""
    import subprocess

    if container.state["Status"] in RUNS:
        return
    processes.make_root(container)
    open(container.wanted, "w").close()
    # The keeper is started as a new program: its command line has no words of the run, so somebody who kills processes
    # by name does not kill it.
    line = [sys.executable, "-I", "-S", "-c", sys.orig_argv[4], sys.path[0], "keep", container.id]
    nothing = subprocess.DEVNULL
    begun = subprocess.Popen(
        line, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, errors="replace", start_new_session=True
    )
    assert begun.stderr
    if (words := begun.stderr.read()) != _STARTED:
        why = words.strip().rpartition("\n")[2].removeprefix("Error response from daemon: ")
        raise Refused(why or "the container's keeper ended", 500)


def keep(container: Container) -> None:
    """Keep a container until it has ended for good.

    The process that started the keeper reads _STARTED from it once the container runs, or why it does not.
    """
    container.hold()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    processes.adopt()
    # systemd-tmpfiles removes old files from /tmp, but leaves a locked folder alone.
    fcntl.flock(os.open(container.scratch, os.O_RDONLY), fcntl.LOCK_SH)
    Keeper(container).run()
    if container.config["AutoRemove"]:
        remove(container)


def wait_for(pid: int, how: int = 0) -> int:
    """Wait for a child, and reap all other children that end. Returns its exit code as a shell reports it.

    -1: it is still running (with WNOHANG).
    """
    with suppress(ChildProcessError):
        while (done := os.waitpid(-1, how))[0]:
            if done[0] == pid:
                code = os.waitstatus_to_exitcode(done[1])
                return 128 - code if code < 0 else code
        return -1
    return 137


class Keeper:
    """The keeper of a container: runs and restarts it, and stores its state."""

    def __init__(self, container: Container) -> None:
        self._container, self._log = container, Log(container)
        self._state: dict[str, Any] = {"Restarts": 0}
        self._noted, self._hidden = 0.0, dict[str, str]()

    def run(self) -> None:
        """Run the container until it ends for good."""
        pause_s, most = _PAUSE_S, self._container.config["Restarts"]
        while self._is_wanted():
            began = time.monotonic()
            code = self._run_once()
            self._log.end()
            self._state = ended(self._state, code)
            if not code or self._state["Restarts"] >= most or not self._is_wanted():
                break
            pause_s = _PAUSE_S if time.monotonic() > began + 10 else min(2 * pause_s, _MOST_PAUSE_S)
            self._keep({"Status": "restarting", "Restarts": self._state["Restarts"] + 1})
            until = time.monotonic() + pause_s
            while self._is_wanted() and time.monotonic() < until:
                time.sleep(0.1)
        self._keep({"Status": "exited"})

    def _is_wanted(self) -> bool:
        """Whether nobody has stopped or removed the container."""
        return os.path.exists(self._container.wanted)

    def _keep(self, more: dict[str, Any]) -> None:
        self._state |= more
        self._container.keep(self._state)

    def _run_once(self) -> int:
        """Run the container once and return its exit code.

        Its output goes into the log until the first process has ended, and for a moment after that.
        """
        pid, ready = spawn_read(self._container, words_of(self._container), False)
        self._keep(running(pid))
        os.write(2, _STARTED.encode())
        os.dup2(0, 2)
        code, end = -1, 0.0
        with ready:
            while code < 0 or (ready.get_map() and time.monotonic() < end):
                self._note()
                for stream, data in arrived(ready, 0.05 if code < 0 else 0.01):
                    self._log.feed(stream, data)
                if code < 0 and (code := wait_for(pid, os.WNOHANG)) >= 0:
                    # A process that was left behind, such as a rank, may still hold the pipe: kill it, and the pipe
                    # closes.
                    with suppress(Refused):
                        processes.sweep(self._container, os.getpid())
                    end = time.monotonic() + _DRAIN_S
        return code

    def _note(self) -> None:
        """Store which processes hide their mark, for a command that cleans up after this keeper was killed."""
        if time.monotonic() > self._noted + _NOTE_S:
            self._noted = time.monotonic()
            hidden = processes.hidden(self._container.id, os.getpid())
            if hidden != self._hidden:
                with suppress(OSError):  # on a full disk, try again later
                    write(f"{self._container.folder}/hidden.json", hidden)
                    self._hidden = hidden


def run_here(container: Container, interactive: bool) -> int:
    """Run a container with this process's own input and output; returns its exit code."""
    container.hold()
    processes.make_root(container)
    processes.adopt()
    pid = processes.spawn(container, words_of(container), interactive).pid
    container.keep(running(pid))
    code = wait_for(pid)
    processes.sweep(container, os.getpid())
    container.keep(ended(container.noted(), code))
    if container.config["AutoRemove"]:
        remove(container)
    return code


def running(pid: int) -> dict[str, Any]:
    """The state of a running container with this first process."""
    return {"Status": "running", "Pid": pid, "Began": processes.began(pid), "StartedAt": now()}


def spawn_read(container: Container, words: Sequence[str], interactive: bool) -> tuple[int, selectors.BaseSelector]:
    """Start a program in a container; `arrived` reads its output."""
    begun, ready = processes.spawn(container, words, interactive, piped=True), selectors.DefaultSelector()
    for stream, pipe in ((1, begun.stdout), (2, begun.stderr)):
        assert pipe
        ready.register(pipe, selectors.EVENT_READ, stream)
    return begun.pid, ready


def arrived(ready: selectors.BaseSelector, wait_s: float | None = None) -> Iterator[tuple[int, bytes]]:
    """The output that has arrived, each piece with its stream."""
    for key, _ in ready.select(wait_s):
        if data := os.read(key.fd, _PIECE):
            yield key.data, data
        else:
            ready.unregister(key.fileobj)


def lines(
    container: Container, times: bool = False, tail: str = "all", since: str = "", follow: bool = False
) -> Iterator[bytes]:
    """The lines that a container has written since a time, with `times` in front; with `follow`, until it ends."""
    seen = _read_log(container, follow)
    # The log may have 100 MB, and few lines may be wanted: only these are parsed.
    for line in seen if tail == "all" else deque(seen, maxlen=int(tail)):
        match = re.fullmatch(rb"(\S+ )[12] ([EC]) (.*)", line, re.DOTALL)
        if match and match[1] >= since.encode():
            yield match[1] * times + match[3] + b"\n" * (match[2] == b"E")


def _read_log(container: Container, follow: bool) -> Iterator[bytes]:
    file, rest = _behind(container, None), b""
    while file:
        # Check this before reading the rest: once there is a newer file, nothing more is added to this one.
        after, lasts = _behind(container, file), follow and container.state["Status"] in RUNS
        while data := file.read(_PIECE):
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
        if not after and not lasts:
            return
        file = after or file
        time.sleep(0.05)


def _behind(container: Container, file: io.BufferedReader | None) -> io.BufferedReader | None:
    """The next file of a log after `file`; without `file`, the oldest one."""
    after = None
    for name in ("log", "log.1"):
        with suppress(FileNotFoundError):
            other = open(f"{container.folder}/{name}", "rb")  # noqa: SIM115 (for who asks)
            if file and os.path.sameopenfile(file.fileno(), other.fileno()):
                break
            after = other
    return after


def end(container: Container) -> None:
    """End all processes of a container, and remove it. Raises Refused if a process does not end."""
    with suppress(Refused):
        processes.send(container, signal.SIGKILL)
    limit = time.monotonic() + _WAIT_S
    while container.is_kept() and time.monotonic() < limit:
        time.sleep(0.01)
    processes.sweep(container)
    remove(container)
