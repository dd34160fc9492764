"""The life of a container: started, watched, its output kept, started again as its policy says, and ended whole.

One process keeps it. If that is killed, the kernel ends the first process of the container, and the next command that
looks finds the rest.
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
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

from . import processes
from .store import RUNS, Any, Container, Refused, ended, now, remove, write

_PIECE, _LONGEST, _LOG_BYTES = 1 << 16, 16 << 10, 50_000_000
_RUNS = "ok"
_PAUSE_S, _MOST_PAUSE_S, _DRAIN_S, _NOTE_S, _WAIT_S = 0.1, 60.0, 1.0, 2.0, 10.0


class Log:
    """What a container writes: lines of a time, the stream (1 or 2), E or C where its line goes on, and the text."""

    def __init__(self, container: Container) -> None:
        self._path = f"{container.folder}/log"
        self._file = io.FileIO(self._path, "ab")
        self._rest = {1: b"", 2: b""}

    def feed(self, stream: int, data: bytes) -> None:
        """Take what a stream has written."""
        *lines, rest = (self._rest[stream] + data).split(b"\n")
        for line in lines:
            self._write(stream, b"E", line)
        while len(rest) >= _LONGEST:
            self._write(stream, b"C", rest[:_LONGEST])
            rest = rest[_LONGEST:]
        self._rest[stream] = rest

    def end(self) -> None:
        """Write what had no end."""
        for stream, rest in self._rest.items():
            if rest:
                self._write(stream, b"E", rest)
            self._rest[stream] = b""

    def _write(self, stream: int, kind: bytes, text: bytes) -> None:
        with suppress(OSError):  # on a full disk, lines are lost, and nothing else
            self._file.write(b"%s %d %s %s\n" % (now().encode(), stream, kind, text))
            if self._file.tell() > _LOG_BYTES:
                with suppress(FileNotFoundError):  # on a disk without room for another file it goes on in this one
                    os.replace(self._path, f"{self._path}.1")
                self._file = io.FileIO(self._path, "ab")


def words_of(container: Container) -> list[str]:
    """The command of a container."""
    return [*container.config["Entrypoint"], *container.config["Cmd"]]


def start(container: Container) -> None:
    """Start a container beside this process. Returns once its first process runs. Raises Refused."""
    import subprocess

    if container.state["Status"] in RUNS:
        return
    processes.make_root(container)
    os.close(os.open(container.wanted, os.O_CREAT, 0o600))
    # A program of its own: who looks at processes sees no words of a run, and who ends those by name spares it.
    line = [sys.executable, "-I", "-S", "-c", sys.orig_argv[4], sys.path[0], "keep", container.id]
    nothing = subprocess.DEVNULL
    begun = subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=subprocess.PIPE, start_new_session=True)
    assert begun.stderr
    if (words := begun.stderr.read().decode(errors="replace")) != _RUNS:
        raise Refused(words.strip().rpartition("\n")[2] or "the container's keeper ended", 500)


def keep(container: Container) -> None:
    """Keep a container until it has ended for good. Who started it gets _RUNS once it runs, or why it does not."""
    container.hold()
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    processes.adopt()
    # What removes old files from /tmp leaves a folder alone that somebody keeps locked (systemd-tmpfiles).
    fcntl.flock(os.open(container.scratch, os.O_RDONLY), fcntl.LOCK_SH)
    Keeper(container).run()
    if container.config["AutoRemove"]:
        remove(container)


def wait_for(pid: int, how: int = 0) -> int:
    """Wait for a child, and collect whatever else ends here. Its code as a shell says it; -1: it goes on (WNOHANG)."""
    with suppress(ChildProcessError):
        while (done := os.waitpid(-1, how))[0]:
            if done[0] == pid:
                code = os.waitstatus_to_exitcode(done[1])
                return 128 - code if code < 0 else code
        return -1
    return 137


class Keeper:
    """The process that keeps a container."""

    def __init__(self, container: Container) -> None:
        self._container, self._log = container, Log(container)
        self._state: dict[str, Any] = {**container.noted(), "Restarts": 0}
        self._noted, self._hidden = 0.0, dict[str, str]()

    def run(self) -> None:
        """Run it until it ends for good."""
        pause_s, most = _PAUSE_S, self._container.config["Restarts"]
        while self._is_wanted():
            began = time.monotonic()
            code = self._live()
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
        """Whether nobody has stopped or removed it."""
        return os.path.exists(self._container.wanted)

    def _keep(self, more: dict[str, Any]) -> None:
        self._state |= more
        self._container.keep(self._state)

    def _live(self) -> int:
        """One life: its code. The output goes into the log until the first process has ended, and a moment longer."""
        pid, ready = spawn_read(self._container, words_of(self._container), False)
        self._keep(running(pid))
        os.write(2, _RUNS.encode())
        os.dup2(0, 2)
        code, end = -1, 0.0
        with ready:
            while code < 0 or (ready.get_map() and time.monotonic() < end):
                self._note()
                for stream, data in arrived(ready, 0.05 if code < 0 else 0.01):
                    self._log.feed(stream, data)
                if code < 0 and (code := wait_for(pid, os.WNOHANG)) >= 0:
                    # Who has the pipe still may be a rank that was left alone: it ends, and the pipe with it.
                    with suppress(Refused):
                        processes.sweep(self._container, os.getpid())
                    end = time.monotonic() + _DRAIN_S
        return code

    def _note(self) -> None:
        """Write down which processes hide their mark, for who looks after this one was killed."""
        if time.monotonic() > self._noted + _NOTE_S:
            self._noted = time.monotonic()
            hidden = processes.hidden(self._container.id, os.getpid(), self._state["Pid"])
            if hidden != self._hidden:
                with suppress(OSError):  # on a full disk it is tried again
                    write(f"{self._container.folder}/hidden.json", hidden)
                    self._hidden = hidden


def run_here(container: Container, interactive: bool) -> int:
    """Run a container whose input and output are this process's own; its code."""
    container.hold()
    processes.make_root(container)
    processes.adopt()
    pid = spawn(container, words_of(container), interactive)
    container.keep({**running(pid), "Restarts": 0})
    code = wait_for(pid)
    processes.sweep(container, os.getpid())
    container.keep(ended(container.noted(), code))
    if container.config["AutoRemove"]:
        remove(container)
    return code


def running(pid: int) -> dict[str, Any]:
    """The state of a container with this first process."""
    return {"Status": "running", "Pid": pid, "Began": processes.began(pid), "StartedAt": now()}


def spawn_read(container: Container, words: Sequence[str], interactive: bool) -> tuple[int, selectors.BaseSelector]:
    """Start a program of a container, whose output `arrived` reads."""
    pipes, ready = {stream: os.pipe() for stream in (1, 2)}, selectors.DefaultSelector()
    pid = spawn(container, words, interactive, {stream: end for stream, (_, end) in pipes.items()})
    for stream, (reading, end) in pipes.items():
        os.close(end)
        ready.register(io.FileIO(reading), selectors.EVENT_READ, stream)
    return pid, ready


def arrived(ready: selectors.BaseSelector, wait_s: float | None = None) -> Iterator[tuple[int, bytes]]:
    """What has come by now, with its stream."""
    for key, _ in ready.select(wait_s):
        if data := os.read(key.fd, _PIECE):
            yield key.data, data
        else:
            ready.unregister(key.fileobj)


def spawn(container: Container, words: Sequence[str], interactive: bool, out: Mapping[int, int] = {}) -> int:
    """Start a program of a container. `out`: its output streams, where they are not this process's own."""
    environment = processes.variables(container)
    pid = os.fork()
    if pid:
        return pid
    try:
        processes.end_with_parent()
        if not interactive:
            os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        for stream, descriptor in out.items():
            os.dup2(descriptor, stream)
        processes.become(container, words, environment)
    except BaseException as failed:
        os.write(2, f"docker: {failed}\n".encode())
    finally:
        os._exit(127)


def lines(
    container: Container, follow: bool = False, since: str = "", tail: str = "all"
) -> Iterator[tuple[str, bytes]]:
    """What it has written since that time: times and texts; with `follow` until it ends."""
    seen = _read_log(container, follow)
    # Of 100 MB few may be wanted: only those are read as what they are.
    for line in seen if tail == "all" else deque(seen, maxlen=int(tail)):
        match = re.fullmatch(rb"(\S+) [12] ([EC]) (.*)", line, re.DOTALL)
        if match and (at := match[1].decode()) >= since:
            yield at, match[3] + b"\n" * (match[2] == b"E")


def _read_log(container: Container, follow: bool) -> Iterator[bytes]:
    file, rest = _behind(container, None), b""
    while file:
        # Known before the rest is read: nothing more comes into a file that has another behind it.
        after, lasts = _behind(container, file), follow and container.state["Status"] in RUNS
        while data := file.read(_PIECE):
            *whole, rest = (rest + data).split(b"\n")
            yield from whole
        if not after and not lasts:
            return
        file = after or file
        time.sleep(0.05)


def _behind(container: Container, file: io.BufferedReader | None) -> io.BufferedReader | None:
    """What a log has behind this file of it: of two the older one."""
    after = None
    for name in ("log", "log.1"):
        with suppress(FileNotFoundError):
            other = open(f"{container.folder}/{name}", "rb")  # noqa: SIM115 (for who asks)
            if file and os.path.sameopenfile(file.fileno(), other.fileno()):
                break
            after = other
    return after


def end(container: Container) -> None:
    """End all of a container, and remove it. Raises Refused if a process stays."""
    with suppress(Refused):
        processes.send(container, signal.SIGKILL)
    limit = time.monotonic() + _WAIT_S
    while os.path.exists(container.folder) and container.is_kept() and time.monotonic() < limit:
        time.sleep(0.01)
    processes.sweep(container)
    remove(container)
