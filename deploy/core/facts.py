"""Plain values that describe this machine, its Docker engine and the nodes of a run. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import SIGNALLED

# Those of Linux, which hosts and containers run, by number. Some have another one where this command runs (macOS).
_SIGNALS = (
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM "
    "SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF "
    "SIGWINCH SIGIO SIGPWR SIGSYS"
)
SIGNALS = dict(enumerate(_SIGNALS.split(), 1))


@dataclass(frozen=True)
class EngineFacts:
    """An answer of the Docker engine: `answers` means that runs can use it, otherwise `reason` says why not."""

    answers: bool
    version: str = ""
    reason: str = ""


@dataclass(frozen=True)
class MachineFacts:
    """This machine: the `cores` we may use, `system` as uname has it, whether this Python can import torch."""

    cores: int
    system: str
    torch: bool
    python: str


@dataclass(frozen=True)
class NodeState:
    """One node as its backend sees it. `code` is negative for a signal; `restarts` counts those by the backend.

    A node is lost if its host is: then it is unknown whether the node has ended. `trouble`: its container is `paused`
    or `gone`, its folder of the run is `closed` to it,
    or its host is `unseen` at the moment; or `lifeless`: its engine is silent, and its files do not grow.
    """

    node: str
    state: Literal["waiting", "running", "exited", "lost"]
    code: int | None = None
    restarts: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class RunFacts:
    """A run folder as `make runs` lists it; unknown values are None."""

    id: str
    verdict: str
    accuracy: float | None
    step: int | None
    seconds: float | None
    bytes: int


def ended_how(code: int) -> str:
    """An exit code in words: `was killed by SIGKILL` for -9 (137 in containers), else `ended with code 1`."""
    number = -code if code < 0 else code - SIGNALLED if code > SIGNALLED else 0
    if number in SIGNALS:
        return f"was killed by {SIGNALS[number]}"
    return f"was killed by signal {-code}" if code < 0 else f"ended with code {code}"
