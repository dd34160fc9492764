"""Forks the ranks from a server process that has imported torch, so that they need not import it.

Under torch's own torchrun every rank imports torch itself, and again at every restart. Here torchrun's process forks
the server before it makes threads or looks for GPUs; the server itself does neither. If the server cannot start a rank
exactly as a new Python would, that rank gets one (ranks.py): as where the script sets variables that torch
reads when it is imported (early.py).
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
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any

from muster.errors import DONE, FAILED

from ... import NAME
from ..parent_death import die_with_parent
from ..rank.site import sitecustomize
from . import early

_MOST_BYTES = 1 << 20
# Libraries read these variables when they are loaded. If a rank's value differs, a fork would be too late for it.
_READ_ON_IMPORT = ("OMP_", "KMP_", "GOMP_", "MKL_", "LD_", "PYTHON")
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Rank:
    """A rank that the server forked, as subprocess.Popen has one."""

    returncode: int | None = None

    def __init__(self, server: Server, pid: int) -> None:
        self.pid, self._server = pid, server

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the rank runs."""
        if self.returncode is None:
            self.returncode = self._server.code(self.pid)
        return self.returncode


class Server:
    """The server's client in torchrun's process: it sends a question and receives an answer."""

    def __init__(self, channel: socket.socket) -> None:
        self._channel, self._questions = channel, 0
        self._environment = dict(os.environ)

    def launch(self, command: Sequence[str], environment: Mapping[str, str], output: str = "") -> Rank | None:
        """Start `python -u ARGUMENTS` with `environment`; None if only a new process can run it faithfully.

        `output`: a file or a named pipe for all that the rank prints; without one it prints where torchrun does.
        """
        python, arguments = list(command[:2]), list(command[2:])
        # A file with another suffix may be an archive; after torchrun's --no-python it is not Python at all.
        supported = bool(arguments) and (arguments[0] == "-m" or arguments[0].endswith(".py"))
        if python != [sys.executable, "-u"] or not supported or self._needs_new_process(environment):
            return None
        own, path = arguments[:2] == ["-m", NAME], environment.get("PYTHONPATH", "").split(os.pathsep)
        if not own and early.sets_variables_first(arguments, Path.cwd(), path):
            return None
        rank = {"arguments": arguments, "environment": dict(environment), "folder": str(Path.cwd()), "output": output}
        answer = self._ask(do="fork", **rank)
        return Rank(self, answer["pid"]) if answer else None

    def code(self, pid: int) -> int | None:
        """A rank's exit code, None while it runs. If the server was killed, its ranks died with it."""
        answer = self._ask(do="poll", pid=pid)
        return answer["code"] if answer else -signal.SIGKILL

    def _needs_new_process(self, environment: Mapping[str, str]) -> bool:
        names = (name for name in {*environment, *self._environment} if name.startswith(_READ_ON_IMPORT))
        return any(environment.get(name) != self._environment.get(name) for name in names)

    def _ask(self, **question: Any) -> dict[str, Any] | None:
        self._questions += 1
        with suppress(OSError):  # the server is gone, or the question is too long for the socket
            self._channel.send(json.dumps({**question, "number": self._questions}).encode())
            # torchrun's signal handler may raise between a question and its answer: skip the answers to earlier ones.
            while data := self._channel.recv(_MOST_BYTES):
                if (answer := json.loads(data))["number"] == self._questions:
                    return dict(answer)
        return None


def start(modules: Sequence[str]) -> Server | None:
    """Fork the server, which imports `modules` and then waits for questions; None on a system without safe forks.

    This returns only in the caller's process: a rank that the server forks runs its script in here and exits.
    """
    if sys.platform != "linux":  # on other systems their own libraries do not survive a fork
        return None
    client_end, server_end = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    gc.freeze()  # a collection would write to every page that server and ranks share
    torchrun = os.getpid()
    if os.fork():
        server_end.close()
        return Server(client_end)
    client_end.close()
    die_with_parent(signal.SIGKILL, torchrun)
    for number in _SIGNALS:  # these signals are for torchrun and for the ranks
        signal.signal(number, signal.SIG_IGN)
    for name in modules:
        importlib.import_module(name)
    gc.freeze()
    gc.enable()  # torchrun turns it off while torch is imported
    arguments = [] if _has_gpu_open() else _serve(server_end)
    if not arguments:
        os._exit(0)
    _run(arguments)
    return None


def _serve(channel: socket.socket) -> list[str]:
    """Answer questions until torchrun ends, then return []. In a forked rank, return that rank's arguments."""
    codes, server = dict[int, int | None](), os.getpid()
    while data := channel.recv(_MOST_BYTES):
        question = json.loads(data)
        if question["do"] == "fork":
            pid = _fork()
            if not pid:
                channel.close()
                _prepare_rank(question, server)
                return list(question["arguments"])
            codes[pid] = None
        else:
            pid = question["pid"]
        answer = {"number": question["number"], "pid": pid, "code": _code(pid, codes)}
        channel.send(json.dumps(answer).encode())
    return []


def _fork() -> int:
    """Fork. The parent returns once the child leads its own session, because torchrun signals the whole session."""
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


def _prepare_rank(question: Mapping[str, Any], server: int) -> None:
    """Give this process the state of a new one, except that it dies with the server."""
    die_with_parent(signal.SIGKILL, server)
    for number in (*_SIGNALS, signal.SIGUSR1, signal.SIGUSR2):
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
        sitecustomize.watch()  # Python imports sitecustomize only at its start, which this process has behind it
    # In a new process each of these generators has a seed of its own; a GPU's generator has a fixed seed.
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    if torch := sys.modules.get("torch"):
        torch.default_generator.seed()


def _run(arguments: list[str]) -> None:
    """Run a script, or a module after -m, as `python ARGUMENTS` does. Raises SystemExit when it ends."""
    module = arguments[0] == "-m"
    sys.orig_argv = [sys.executable, "-u", *arguments]  # as torchrun's: a script may start itself again by it
    sys.argv = arguments[1:] if module else arguments
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(Path.cwd() if module else Path(arguments[0]).resolve().parent))
    if arguments[:2] != ["-m", NAME]:  # a user may have modules with the names of Muster's packages
        for name in [name for name in sys.modules if name.partition(".")[0] == "muster"]:
            del sys.modules[name]
    try:
        if module:
            runpy.run_module(arguments[1], run_name="__main__", alter_sys=True)
        else:
            main = sys.modules["__main__"] = ModuleType("__main__")
            main.__file__, main.__dict__["__builtins__"] = str(Path(arguments[0]).absolute()), builtins
            exec(compile(Path(arguments[0]).read_bytes(), main.__file__, "exec"), main.__dict__)
    except SystemExit:
        raise
    except BaseException as fault:
        trace = fault.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            trace = trace.tb_next
        if not isinstance(fault, Exception):  # Python ends by it: of a KeyboardInterrupt by the signal
            show = sys.excepthook
            sys.excepthook = lambda kind, value, _: show(kind, value.with_traceback(trace), trace)
            raise
        sys.last_type, sys.last_value, sys.last_traceback = type(fault), fault, trace  # as Python itself does
        sys.excepthook(type(fault), fault.with_traceback(trace), trace)
        sys.exit(FAILED)
    sys.exit(DONE)


def _has_gpu_open() -> bool:
    """Whether an import has opened a GPU: CUDA does not survive a fork."""
    open_files = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            open_files.append(str(descriptor.readlink()))
    return any(path.startswith("/dev/nvidia") for path in open_files)
