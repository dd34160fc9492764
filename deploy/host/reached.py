"""The hosts of a command that were reached: what nearly every step of a deploy and of a preflight works with."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Self

from ..causes.finding import Finding
from ..door.session import Session, among
from ..job.cluster import Cluster
from ..job.inventory import typed_hosts
from ..job.options import Job
from .facts import Container, HostFacts


@dataclass(frozen=True)
class ReachedHosts:
    """The hosts as the user asked for them, with the sessions to those that were reached, and the facts by host.

    `faults` names the others, each with its cause and words; `findings`: what a look has shown already.
    """

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    findings: tuple[Finding, ...] = field(default=(), kw_only=True)
    faults: Mapping[str, tuple[str, str]] = field(default_factory=dict, kw_only=True)

    @property
    def job(self) -> Job:
        """What is asked of all of them."""
        return self.cluster.job

    @property
    def in_order(self) -> list[HostFacts]:
        """The facts of all hosts, in the user's order."""
        return [self.facts[host.name] for host in self.cluster.hosts]

    @property
    def containers_by_host(self) -> dict[str, tuple[Container, ...]]:
        """Those of runs, by host."""
        return {host: fact.containers for host, fact in self.facts.items()}

    def only(self, names: Collection[str]) -> Self:
        """Return these with the sessions to some of them alone."""
        return replace(self, sessions=among(self.sessions, names))


def as_typed(sessions: Iterable[Session]) -> str:
    """The hosts of these sessions, as a user types them after --hosts."""
    return typed_hosts(session.host for session in sessions)
