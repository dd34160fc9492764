"""The life of a container: started, watched, its output kept, started again as its policy says, and ended whole.

Two processes keep it: the watcher has the log and the restarts; the guard above it ends all that is left if the watcher
is killed. If both are, the kernel ends the first process of the container, and the next command finds the rest.
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
_PAUSE_S, _MOST_PAUSE_S, _DRAIN_S, _NOTE_S, _WAIT_S = 0.1, 60.0, 1.0, 2.0, 10.0


class Log:
    """What a container writes: lines of a time, the stream (1 or 2), E where a line ends there or C, and the text."""

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
                self._write(stream, b"C", rest)
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
    reading, writing = os.pipe()
    # A program of its own: who looks at processes sees no words of a run, and who ends those by name spares it.
    line = [*itself(), "keep", container.id, str(writing)]
    nothing = subprocess.DEVNULL
    subprocess.Popen(line, stdin=nothing, stdout=nothing, stderr=nothing, pass_fds=[writing], start_new_session=True)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        if (words := answer.read().decode()) != "ok":
            raise Refused(words or "the container's keeper ended", 500)


def itself() -> list[str]:
    """The words that start this program."""
    return [sys.executable, "-I", "-S", "-c", sys.orig_argv[4], sys.path[0]]


def guard(container: Container, writing: int) -> None:
    """Let a watcher work, and end what is left if it is killed. Does not return."""
    if container.hold() is None:
        os._exit(1)
    os.set_inheritable(writing, False)
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    processes.adopt()
    # What removes old files from /tmp leaves a folder alone that somebody keeps locked (systemd-tmpfiles).
    fcntl.flock(os.open(container.scratch, os.O_RDONLY), fcntl.LOCK_SH)
    watcher = os.fork()
    if watcher == 0:
        try:
            Watcher(container, writing).run()
        finally:
            os._exit(0)
    os.close(writing)
    wait_for(watcher)
    with suppress(Refused):
        processes.sweep(container, os.getpid())
    state = container.noted()
    if state["Status"] in RUNS:
        container.keep(ended(state, 137))
    if container.config["AutoRemove"]:
        remove(container)
    os._exit(0)


def wait_for(pid: int, how: int = 0) -> int:
    """Wait for a child, and collect whatever else ends here. Its code as a shell says it; -1: it goes on (WNOHANG)."""
    with suppress(ChildProcessError):
        while (done := os.waitpid(-1, how))[0]:
            if done[0] == pid:
                code = os.waitstatus_to_exitcode(done[1])
                return 128 - code if code < 0 else code
        return -1
    return 137


class Watcher:
    """The process that watches a container; `writing` gets `ok` once it runs, or why it does not."""

    def __init__(self, container: Container, writing: int) -> None:
        self._container, self._writing = container, writing
        self._log, self._pause_s = Log(container), _PAUSE_S
        self._noted, self._hidden = 0.0, dict[str, str]()

    def run(self) -> None:
        """Run it until it ends for good."""
        processes.adopt()
        processes.end_with_parent()
        state: dict[str, Any] = {**self._container.noted(), "Restarts": 0}
        while self._is_wanted():
            code, lasted_s = self._live(state)
            state = {**self._container.noted(), "Restarts": state["Restarts"]}
            with suppress(Refused):
                processes.sweep(self._container, os.getpid())
            self._log.end()
            if not code or state["Restarts"] >= self._container.config["Restarts"] or not self._is_wanted():
                self._container.keep(ended(state, code))
                return
            self._pause_s = _PAUSE_S if lasted_s > 10 else min(2 * self._pause_s, _MOST_PAUSE_S)
            state = {**ended(state, code), "Status": "restarting", "Restarts": state["Restarts"] + 1}
            self._container.keep(state)
            until = time.monotonic() + self._pause_s
            while self._is_wanted() and time.monotonic() < until:
                time.sleep(0.1)
        self._container.keep({**state, "Status": "exited"})

    def _is_wanted(self) -> bool:
        """Whether nobody has stopped or removed it."""
        return os.path.exists(self._container.wanted)

    def _live(self, state: dict[str, Any]) -> tuple[int, float]:
        """One life: its code, and how long it took."""
        pipes = {1: os.pipe(), 2: os.pipe()}
        pid = spawn(self._container, words_of(self._container), False, {n: end for n, (_, end) in pipes.items()})
        for _, end in pipes.values():
            os.close(end)
        started = time.monotonic()
        running = {"Status": "running", "Pid": pid, "Began": processes.began(pid), "StartedAt": now()}
        self._container.keep({**state, **running})
        if self._writing >= 0:
            os.write(self._writing, b"ok")
            os.close(self._writing)
            self._writing = -1
        code = self._carry(pid, {reading: stream for stream, (reading, _) in pipes.items()})
        return code, time.monotonic() - started

    def _note(self) -> None:
        """Write down which processes hide their mark, for who looks after this one was killed."""
        if time.monotonic() > self._noted + _NOTE_S:
            self._noted = time.monotonic()
            hidden = processes.hidden(self._container.id, os.getpid())
            if hidden != self._hidden:
                with suppress(OSError):  # on a full disk it is tried again
                    write(f"{self._container.folder}/hidden.json", hidden)
                    self._hidden = hidden

    def _carry(self, pid: int, readers: dict[int, int]) -> int:
        """Carry the output into the log until the first process has ended, and a moment longer."""
        code, end = -1, 0.0
        with selectors.DefaultSelector() as ready:
            for reading in readers:
                os.set_blocking(reading, False)
                ready.register(reading, selectors.EVENT_READ)
            while code < 0 or (ready.get_map() and time.monotonic() < end):
                self._note()
                for key, _ in ready.select(0.05 if code < 0 else 0.01):
                    with suppress(BlockingIOError):
                        if data := os.read(key.fd, _PIECE):
                            self._log.feed(readers[key.fd], data)
                        else:
                            ready.unregister(key.fd)
                if code < 0 and (code := wait_for(pid, os.WNOHANG)) >= 0:
                    # Who has the pipe still may be a rank that was left alone: it ends, and the pipe with it.
                    with suppress(Refused):
                        processes.sweep(self._container, os.getpid())
                    end = time.monotonic() + _DRAIN_S
        for reading in readers:
            os.close(reading)
        return code


def run_here(container: Container, interactive: bool) -> int:
    """Run a container whose input and output are this process's own; its code."""
    container.hold()
    processes.make_root(container)
    processes.adopt()
    pid = spawn(container, words_of(container), interactive)
    container.keep({"Status": "running", "Pid": pid, "Began": processes.began(pid), "StartedAt": now(), "Restarts": 0})
    _pass_on(pid)
    code = wait_for(pid)
    processes.sweep(container, os.getpid())
    container.keep(ended(container.noted(), code))
    if container.config["AutoRemove"]:
        remove(container)
    return code


def run_inside(container: Container, words: Sequence[str], interactive: bool) -> int:
    """Run a command in a container that runs, with this process's input and output; its code. Raises Refused."""
    container.require_running()
    pid = spawn(container, words, interactive)
    _pass_on(pid)
    return wait_for(pid)


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


def _pass_on(pid: int) -> None:
    """Pass signals on to the program; a terminal sends them to us alone, for the program has a session of its own."""

    def send(number: int, _: object) -> None:
        with suppress(OSError):
            os.kill(pid, number)

    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGWINCH):
        signal.signal(number, send)


def lines(
    container: Container, follow: bool = False, since: str = "", tail: str = "all"
) -> Iterator[tuple[str, int, bytes]]:
    """What it has written since that time: times, streams and texts; with `follow` until it ends."""
    seen = _read_log(container, follow)
    # Of 100 MB few may be wanted: only those are read as what they are.
    for line in seen if tail == "all" else deque(seen, maxlen=int(tail)):
        match = re.fullmatch(rb"(\S+) ([12]) ([EC]) (.*)", line, re.DOTALL)
        if match and (at := match[1].decode()) >= since:
            yield at, int(match[2]), match[4] + b"\n" * (match[3] == b"E")


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
