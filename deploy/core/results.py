"""One value or one error per host: the result of work on many hosts together. Pure.

No error is lost: the caller reports all failing hosts together (`all`), or continues with the other hosts (`values`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Generic, TypeVar

from .errors import FAILED, DeployError

T = TypeVar("T")
U = TypeVar("U")


class HostsFailed(DeployError):
    """Some hosts failed, each for its own reason: `faults` has them by host, and the message has a line for each."""

    def __init__(self, faults: Mapping[str, DeployError], asked: int) -> None:
        self.faults = dict(faults)
        codes = {fault.code for fault in self.faults.values()}
        super().__init__(*_described(self.faults, asked), codes.pop() if len(codes) == 1 else FAILED)


class Results(Generic[T]):
    """A value or a DeployError for each host, in the order in which the user named the hosts.

    >>> Results({"a": 1, "b": DeployError("b: refused")}).values
    {'a': 1}
    """

    def __init__(self, outcomes: Mapping[str, T | DeployError]) -> None:
        self.values: dict[str, T] = {}
        self.faults: dict[str, DeployError] = {}
        for host, outcome in outcomes.items():
            if isinstance(outcome, DeployError):
                self.faults[host] = outcome
            else:
                self.values[host] = outcome
        self._order = tuple(outcomes)

    def all(self) -> dict[str, T]:
        """Every host's value. Raises HostsFailed with all failing hosts, if a host failed."""
        if self.faults:
            raise HostsFailed(self.faults, len(self))
        return self.values

    def then(self, work: Callable[[T], U]) -> Results[U]:
        """Apply `work` to every value. Faults stay, and a DeployError that `work` raises becomes that host's fault."""
        return Results({host: self._next(host, work) for host in self._order})

    def __iter__(self) -> Iterator[str]:
        return iter(self._order)

    def __len__(self) -> int:
        return len(self._order)

    def _next(self, host: str, work: Callable[[T], U]) -> U | DeployError:
        if host in self.faults:
            return self.faults[host]
        try:
            return work(self.values[host])
        except DeployError as fault:
            return fault


def all_faults(*results: Results[Any]) -> None:
    """Raise HostsFailed with the faults of all the results, if there are any."""
    faults = {host: fault for result in results for host, fault in result.faults.items()}
    hosts = dict.fromkeys(host for result in results for host in result)
    Results({host: faults.get(host, True) for host in hosts}).all()


def _described(faults: Mapping[str, DeployError], asked: int) -> tuple[str, str]:
    """Message and hint: for one failing host, its own; for several, a line each, with hints that they do not share."""
    hints = list(dict.fromkeys(fault.hint for fault in faults.values()))
    if len(faults) == 1:
        ((host, fault),) = faults.items()
        return named(host, fault), fault.hint
    shared = hints[0] if len(hints) == 1 else ""
    lines = [f"{len(faults)} of {asked} hosts failed"]
    for host, fault in faults.items():
        own = "" if shared or not fault.hint else f" ({fault.hint})"
        lines.append(f"  {named(host, fault)}{own}")
    return "\n".join(lines), shared


def named(host: str, fault: DeployError) -> str:
    """The fault on one line that begins with the host's name."""
    line = " ".join(fault.message.split())
    return line if line.startswith(f"{host}: ") else f"{host}: {line}"
