"""The hosts that a command has reached: nearly every step of a deploy and of a preflight works with them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Self

from ..causes.finding import Finding
from ..core.errors import CommandEnded, DeployError
from ..door.session import Session, SshFault, among
from ..job.cluster import Cluster
from ..job.inventory import typed_hosts
from ..job.options import Job
from .facts import Container, HostFacts


class NoAnswer(NamedTuple):
    """Why preflight could not examine a host: the slug of the cause, what was seen, and the next command.

    `kind`: that of an SSH fault. `ended`: the exit code and the last words of a probe that ended.
    """

    cause: str
    text: str
    hint: str = ""
    kind: str = ""
    ended: tuple[int, str] | None = None

    @classmethod
    def of(cls, fault: DeployError, otherwise: str = "probe-died") -> Self:
        """The answer that a fault stands for. `otherwise`: the cause of a fault that is not of SSH."""
        if isinstance(fault, SshFault):
            return cls(fault.slug, fault.message, fault.hint, fault.kind)
        return cls(otherwise, fault.message, fault.hint, ended=fault.ended if isinstance(fault, CommandEnded) else None)

    @classmethod
    def of_probe(cls, fault: DeployError) -> Self:
        """Likewise, of a probe: if it is silent, it may also have died."""
        seen = cls.of(fault)
        return seen._replace(cause="probe-died") if seen.kind == "slow" else seen


@dataclass(frozen=True)
class ReachedHosts:
    """The hosts as the user asked for them, the sessions to those that were reached, and their facts by host.

    `faults`: why a host was not reached; `findings`: what a look has already shown.
    """

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    findings: tuple[Finding, ...] = field(default=(), kw_only=True)
    faults: Mapping[str, NoAnswer] = field(default_factory=dict, kw_only=True)

    @property
    def job(self) -> Job:
        """The job that the user asked for, the same on all hosts."""
        return self.cluster.job

    @property
    def in_order(self) -> list[HostFacts]:
        """The facts of all hosts, in the user's order."""
        return [self.facts[host.name] for host in self.cluster.hosts]

    @property
    def containers_by_host(self) -> dict[str, tuple[Container, ...]]:
        """The containers of runs, by host."""
        return {host: fact.containers for host, fact in self.facts.items()}

    def with_sessions_to(self, names: Collection[str]) -> Self:
        """A copy with only the sessions to these hosts."""
        return replace(self, sessions=among(self.sessions, names))


def as_typed(sessions: Iterable[Session]) -> str:
    """The hosts of these sessions, as a user types them after --hosts."""
    return typed_hosts(session.host for session in sessions)
