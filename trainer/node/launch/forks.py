"""Forks a rank from torchrun's process, which has imported torch; and decides whether that is possible.

Under torch's own torchrun, every rank imports torch itself, and again at every restart. Here torchrun's process has no
threads, and a rank is a fork of it. If a fork would not behave exactly like a new Python, the rank gets a new one
(ranks.py): if torchrun has looked for GPUs, for example, or if the script sets or imports something that torchrun's
process has loaded already (script_text.py).
"""

from __future__ import annotations

import builtins
import faulthandler
import os
import random
import runpy
import signal
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import ModuleType

import torch
from torch.distributed.launcher.api import LaunchConfig

from ... import NAME
from ..parent_death import die_with_parent
from ..rank.site import sitecustomize
from . import script_text

# Libraries read these variables when they are loaded. If a rank's value differs, a fork would be too late for it.
_READ_ON_IMPORT = ("OMP_", "KMP_", "GOMP_", "MKL_", "LD_", "PYTHON")
_AT_IMPORT = {name: value for name, value in os.environ.items() if name.startswith(_READ_ON_IMPORT)}
_TO_RANKS = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)
_SIGNALS = (signal.SIGINT, *_TO_RANKS)
# How long to wait until threads that share files have ended: a fork has no such threads, but keeps the locks they hold.
_THREADS_S = 1.0


class Forked(BaseException):
    """Raised in a forked process, so that it leaves torchrun's code and continues with `words`."""

    def __init__(self, words: Sequence[str]) -> None:
        super().__init__(words)
        self.words = list(words)


class Rank:
    """A forked rank, with as much of subprocess.Popen's interface as is needed."""

    returncode: int | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while the rank runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            self.returncode = os.waitstatus_to_exitcode(status) if pid else None
        return self.returncode


def can_start(command: Sequence[str], environment: Mapping[str, str]) -> bool:
    """Whether a fork behaves exactly like a new process with this command, `python -u WORDS`, and environment."""
    python, words = list(command[:2]), list(command[2:])
    # On systems other than Linux, the system's own libraries do not survive a fork. A file with another suffix than .py
    # may be an archive, or, after torchrun's --no-python, no Python at all.
    supported = bool(words) and (words[0] == "-m" or words[0].endswith(".py")) and sys.platform == "linux"
    given = {name: value for name, value in environment.items() if name.startswith(_READ_ON_IMPORT)}
    if python != [sys.executable, "-u"] or not supported or given != _AT_IMPORT or _has_asked_for_gpu():
        return False
    path = environment.get("PYTHONPATH", "").split(os.pathsep)
    return words[:2] == ["-m", NAME] or not script_text.needs_new_python(words, Path.cwd(), path)


def start(command: Sequence[str], environment: Mapping[str, str], output: int | None, torchruns: Sequence[int]) -> Rank:
    """Fork a rank, which leads a session of its own once this returns. Raises Forked in the rank.

    `output`: a descriptor for all that the rank prints; without one, it prints to torchrun's own output. `torchruns`:
    torchrun's descriptors, which the rank closes.
    """
    torchrun, (reading, writing) = os.getpid(), os.pipe()
    end = time.monotonic() + _THREADS_S
    while threading.active_count() > 1 and time.monotonic() < end:
        time.sleep(0.001)
    before = signal.pthread_sigmask(signal.SIG_BLOCK, _SIGNALS)  # torchrun's handlers are not for the rank
    pid = os.fork()
    if not pid:
        os.setsid()
        os.close(reading)
        os.close(writing)
        _prepare(torchrun, environment, output, torchruns)
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        raise Forked(command[2:])
    signal.pthread_sigmask(signal.SIG_SETMASK, before)
    os.close(writing)
    os.read(reading, 1)
    os.close(reading)
    return Rank(pid)


def _prepare(torchrun: int, environment: Mapping[str, str], output: int | None, torchruns: Sequence[int]) -> None:
    """Give this process the state of a new one, except that it dies with torchrun."""
    die_with_parent(signal.SIGKILL, torchrun)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    for number in _TO_RANKS:
        signal.signal(number, signal.SIG_DFL)
    if not (environment.get("PYTHONFAULTHANDLER") or sys.flags.dev_mode):
        faulthandler.disable()  # torchrun has enabled it
    os.environ.clear()
    os.environ.update(environment)
    if output is not None:
        os.dup2(output, 1)
        os.dup2(output, 2)
    for each in torchruns:
        os.close(each)
    if "MUSTER_OUTCOME_DIR" in os.environ and str(Path(sitecustomize.__file__).parent) in sys.path:
        sitecustomize.watch()  # Python imports sitecustomize only when it starts, and a fork does not start anew
    # A new process seeds each of these generators differently; a GPU's generator has a fixed seed.
    random.seed()
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()
    torch.default_generator.seed()


def run(words: list[str]) -> None:
    """Run a script, or a module after -m, as `python WORDS` does; this process then ends as the script does."""
    module = words[0] == "-m"
    sys.orig_argv = [sys.executable, "-u", *words]  # as under torchrun: a script may use it to start itself again
    sys.argv = words[1:] if module else words
    if not os.environ.get("PYTHONSAFEPATH"):
        sys.path.insert(0, str(Path.cwd() if module else Path(words[0]).resolve().parent))
    if words[:2] != ["-m", NAME]:  # a user may have modules with the names of Muster's packages
        for name in [name for name in sys.modules if name.partition(".")[0] == "muster"]:
            del sys.modules[name]
    # Children that multiprocessing has spawned call the main module by the second name in what they send back.
    main = sys.modules["__main__"] = sys.modules["__mp_main__"] = ModuleType("__main__")
    vars(main).update(__builtins__=builtins, __annotations__={})
    try:
        if module:
            runpy._run_module_as_main(words[1])  # type: ignore[attr-defined]  # as Python itself does for -m
        else:
            main.__file__ = str(Path(words[0]).absolute())
            exec(compile(Path(words[0]).read_bytes(), main.__file__, "exec", dont_inherit=True), vars(main))
    except BaseException as fault:
        trace = fault.__traceback__
        while trace and trace.tb_frame.f_code.co_filename in (__file__, runpy.__file__, "<frozen runpy>"):
            trace = trace.tb_next
        show = sys.excepthook
        sys.excepthook = lambda kind, value, _: show(kind, value.with_traceback(trace), trace)
        raise


def _has_asked_for_gpu() -> bool:
    """Whether torch would refuse GPUs to a fork: an import opened one, or torchrun has looked for one."""
    # Whether it finds one or not. torchrun looks for GPUs since it can bind ranks to memory near their GPU.
    if (torch.version.cuda or torch.version.hip) and hasattr(LaunchConfig, "numa_options"):
        return True
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):
            if str(descriptor.readlink()).startswith("/dev/nvidia"):
                return True
    return False
