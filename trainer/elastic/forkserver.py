"""Ranks that need not import torch: a server that has it forks them, once torchrun's process has forked the server.

Started the ordinary way each rank imports torch for itself, beside torchrun that did so already, and again at every
restart. The server is forked before torchrun makes threads or looks for GPUs, and does neither. What it cannot
start as faithfully as a new Python would, torchrun starts as it always did.
"""

from __future__ import annotations

import builtins
import gc
import importlib
import json
import os
import random
import runpy
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from muster.errors import DONE, FAILED

from .. import NAME
from ..node.parent_death import die_with_parent
from ..node.site import sitecustomize

_POLL_SECONDS = 0.02
_MOST_BYTES = 1 << 20
# A library reads these when it is loaded: one that is other for the rank came too late.
_READ_ON_IMPORT = ("OMP_", "KMP_", "GOMP_", "MKL_", "LD_", "PYTHON")
_OURS = {"muster", NAME.partition(".")[0]}
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Rank:
    """A rank that the server forked, to torchrun what subprocess.Popen is."""

    returncode: int | None = None

    def __init__(self, server: Server, pid: int) -> None:
        self.pid, self._server = pid, server

    def poll(self) -> int | None:
        """The exit code, a signal's number below zero; None while the rank runs."""
        if self.returncode is None:
            self.returncode = self._server.code(self.pid)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once there is one. Raises subprocess.TimeoutExpired after `timeout` seconds."""
        end = time.monotonic() + (float("inf") if timeout is None else timeout)
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"rank {self.pid}", timeout or 0.0)
            time.sleep(_POLL_SECONDS)
        return code


class Server:
    """The server as torchrun's process sees it: one question, one answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._asked = channel, 0
        self._environment = dict(os.environ)

    def launch(self, command: Sequence[str], environment: Mapping[str, str], output: str = "") -> Rank | None:
        """Start `python -u WORDS` with `environment`; None where only a new process would be the same.

        `output`: a file, or a named pipe, for all that it prints; else that goes where torchrun's own goes.
        """
        python, words = list(command[:2]), list(command[2:])
        # What has another name may be an archive; behind torchrun's --no-python it is no Python at all.
        plain = bool(words) and (words[0] == "-m" or words[0].endswith(".py"))
        if python != [sys.executable, "-u"] or not plain or self._came_too_late(environment):
            return None
        said = self._ask(do="fork", words=words, environment=dict(environment), folder=str(Path.cwd()), output=output)
        return Rank(self, said["pid"]) if said else None

    def code(self, pid: int) -> int | None:
        """A rank's exit code, None while it runs. A server that was killed has taken its ranks along."""
        said = self._ask(do="poll", pid=pid)
        return said["code"] if said else -signal.SIGKILL

    def _came_too_late(self, environment: Mapping[str, str]) -> bool:
        names = (name for name in {*environment, *self._environment} if name.startswith(_READ_ON_IMPORT))
        return any(environment.get(name) != self._environment.get(name) for name in names)

    def _ask(self, **question: Any) -> dict[str, Any] | None:
        self._asked += 1
        with suppress(OSError):  # gone, or a question too long for it
            self._channel.send(json.dumps({**question, "number": self._asked}).encode())
            # An answer may be left over: torchrun's signal handler raises wherever it strikes.
            while data := self._channel.recv(_MOST_BYTES):
                if (said := json.loads(data))["number"] == self._asked:
                    return dict(said)
        return None


def start(modules: Sequence[str], held: socket.socket | None = None) -> Server | None:
    """Fork the server, which imports `modules` and then waits to be asked; None where there can be none.

    `held` stays with the caller alone. Returns in the caller's process alone: a rank ends in here, as a script does.
    """
    if sys.platform != "linux":  # elsewhere the system's own libraries do not survive a fork
        return None
    here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # a collection would write to every page that server and ranks share
    torchrun = os.getpid()
    if os.fork():
        there.close()
        return Server(here)
    here.close()
    if held:
        held.close()
    die_with_parent(signal.SIGKILL, torchrun)
    for number in _SIGNALS:  # for torchrun, and for the ranks
        signal.signal(number, signal.SIG_IGN)
    for name in modules:
        importlib.import_module(name)
    words = [] if _holds_gpu() else _serve(there)
    if not words:
        os._exit(0)
    _run(words)
    return None


def _serve(channel: socket.socket) -> list[str]:
    """Answer until torchrun ends: nothing is returned then. Returns a rank's words where this is the rank."""
    codes, server = dict[int, int | None](), os.getpid()
    while data := channel.recv(_MOST_BYTES):
        question = json.loads(data)
        if question["do"] == "fork":
            pid = _fork()
            if not pid:
                channel.close()
                _settle(question, server)
                return list(question["words"])
            codes[pid] = None
        else:
            pid = question["pid"]
        answer = {"number": question["number"], "pid": pid, "code": _code(pid, codes)}
        channel.send(json.dumps(answer).encode())
    return []


def _fork() -> int:
    """Fork; in the parent, return once the child leads a session of its own: torchrun signals the whole of it."""
    reading, writing = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writing)
        os.read(reading, 1)
        os.close(reading)
        return pid
    os.setsid()
    os.close(reading)
    os.close(writing)
    return 0


def _code(pid: int, codes: dict[int, int | None]) -> int | None:
    if codes[pid] is None:
        ended, status = os.waitpid(pid, os.WNOHANG)
        codes[pid] = os.waitstatus_to_exitcode(status) if ended else None
    return codes[pid]


def _settle(question: Mapping[str, Any], server: int) -> None:
    """Make this process what a new one would be, but that it ends with the server's."""
    die_with_parent(signal.SIGKILL, server)
    for number in _SIGNALS:
        signal.signal(number, signal.default_int_handler if number == signal.SIGINT else signal.SIG_DFL)
    os.environ.clear()
    os.environ.update(question["environment"])
    os.chdir(question["folder"])
    if question["output"]:
        output = os.open(question["output"], os.O_WRONLY)
        os.dup2(output, 1)
        os.dup2(output, 2)
        os.close(output)
    if "MUSTER_OUTCOME_DIR" in os.environ and str(Path(sitecustomize.__file__).parent) in sys.path:
        sitecustomize.watch()  # this process has started already
    # Of what draws without being told a seed, each process has its own; a GPU's generator has a fixed one.
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def _run(words: list[str]) -> None:
    """As `python WORDS` does: a script, or a module behind -m. Raises SystemExit, as the end of it."""
    module = words[0] == "-m"
    sys.argv = words[1:] if module else words
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(Path.cwd() if module else Path(words[0]).resolve().parent))
    if words[:2] != ["-m", NAME]:  # a user may have modules of these names
        for name in [name for name in sys.modules if name.partition(".")[0] in _OURS]:
            del sys.modules[name]
    try:
        if module:
            runpy.run_module(words[1], run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = ModuleType("__main__")
            main.__file__, main.__dict__["__builtins__"] = str(Path(words[0]).absolute()), builtins
            exec(compile(Path(words[0]).read_bytes(), main.__file__, "exec"), main.__dict__)
    except Exception as fault:
        trace = fault.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            trace = trace.tb_next
        sys.excepthook(type(fault), fault.with_traceback(trace), trace)
        sys.exit(FAILED)
    sys.exit(DONE)


def _holds_gpu() -> bool:
    """Whether some import has opened a GPU: CUDA does not survive a fork."""
    held = []
    for one in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            held.append(str(one.readlink()))
    return any(path.startswith("/dev/nvidia") for path in held)
