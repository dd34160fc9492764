"""Plain values that describe this machine, its Docker engine and the nodes of a run. No I/O here."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .errors import SIGNALLED

# Linux signals in the order of their numbers: hosts and containers run Linux. This command may run on macOS, where
# some signals have other numbers.
_SIGNALS = (
    "SIGHUP SIGINT SIGQUIT SIGILL SIGTRAP SIGABRT SIGBUS SIGFPE SIGKILL SIGUSR1 SIGSEGV SIGUSR2 SIGPIPE SIGALRM "
    "SIGTERM SIGSTKFLT SIGCHLD SIGCONT SIGSTOP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGXCPU SIGXFSZ SIGVTALRM SIGPROF "
    "SIGWINCH SIGIO SIGPWR SIGSYS"
)
SIGNALS = dict(enumerate(_SIGNALS.split(), 1))


@dataclass(frozen=True)
class EngineFacts:
    """Whether runs can use the Docker engine (`answers`), and the `reason` if they cannot.

    `version`: set if the engine answered, even if `docker compose` did not. `silent`: it took too long to answer, so
    nothing is known about it.
    """

    answers: bool
    version: str = ""
    reason: str = ""
    silent: bool = False


@dataclass(frozen=True)
class MachineFacts:
    """This machine: the `cores` that runs may use, `system` from uname, and whether this Python can import torch."""

    cores: int
    system: str
    torch: bool
    python: str


@dataclass(frozen=True)
class NodeState:
    """One node as its backend sees it. `code` is negative for a signal; `restarts` counts restarts by the backend.

    A node is `lost` if its host is lost: nobody knows then whether the node has ended. `trouble` is `paused` or `gone`
    (its container), `closed` (the node cannot use its run folder), `unseen` (its host does not answer at the moment),
    or `lifeless` (its engine does not answer, and its files do not grow).
    """

    node: str
    state: Literal["waiting", "running", "exited", "lost"]
    code: int | None = None
    restarts: int = 0
    trouble: str = ""


@dataclass(frozen=True)
class RunFacts:
    """A run folder as `make runs` lists it; unknown values are None.

    `verdict`, `since` and `ask`: as in run/files/standing.py.
    """

    id: str
    verdict: str
    accuracy: float | None
    step: int | None
    seconds: float | None
    bytes: int
    since: float = 0.0
    ask: str = ""


def exit_code(code: int, verb: str = "") -> str:
    """An exit code in words: `was killed by SIGKILL` for -9 (137 from a container), or `code 1` after the verb."""
    number = -code if code < 0 else code - SIGNALLED if code > SIGNALLED else 0
    if number in SIGNALS:
        return f"was killed by {SIGNALS[number]}"
    return f"was killed by signal {-code}" if code < 0 else f"{verb}code {code}"


def ended_how(code: int) -> str:
    """How a process ended, from its exit code: `was killed by SIGKILL`, or `ended with code 1`."""
    return exit_code(code, "ended with ")
