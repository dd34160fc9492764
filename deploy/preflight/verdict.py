"""What preflight has to say: the verdict, which puts one finding first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from ..causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ..causes.table import DOCS

GROUPS = ("hosts", "software", "gpus", "names", "interfaces", "links", "mtu", "ports", "clocks", "resources", "proof")


@dataclass(frozen=True)
class Verdict:
    """All findings in order; the first fault is the cause. `groups`: outcome of each group of checks.

    rehearsed: what a rehearsal of the run has shown. not_rehearsed: why there was none.
    unexplained: where not all is well, failed calls that no finding explains.
    """

    findings: tuple[Finding, ...]
    groups: dict[str, str] = field(default_factory=dict)
    hosts_examined: tuple[str, ...] = ()
    seconds: float = 0.0
    where: str = ""
    rehearsed: str = ""
    not_rehearsed: str = ""
    unexplained: tuple[str, ...] = ()
    network: str = ""

    @property
    def faults(self) -> list[Finding]:
        """What would keep training from starting, or from ending; the first is the cause."""
        return self._of(FAULT)

    @property
    def warnings(self) -> list[Finding]:
        """What does not stop training."""
        return self._of(WARNING)

    @property
    def unknown(self) -> list[Finding]:
        """What could not be told."""
        return self._of(UNKNOWN)

    @property
    def problems(self) -> list[Finding]:
        """The faults, then what could not be told."""
        return [*self.faults, *self.unknown]

    def _of(self, level: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]

    def obstacles(self, overlooked: Collection[str]) -> list[Finding]:
        """The faults, and what could not be told, for a run that bears the causes in `overlooked`.

        Of `not-known`, the run must bear every cause that is left.
        """
        borne = frozenset(overlooked)
        return [finding for finding in self.problems if not borne.issuperset(finding.odd or (finding.cause,))]

    @property
    def ok(self) -> bool:
        """No fault, and nothing that could not be told."""
        return not self.problems

    @property
    def first(self) -> Finding | None:
        """The cause, whole."""
        return next(iter(self.problems), None)

    @property
    def cause(self) -> str:
        """The slug of the cause; empty if all is well."""
        return self.first.cause if self.first else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts to repair."""
        return self.first.hosts if self.first else ()

    @property
    def fix(self) -> str:
        """A command to copy, or what to do."""
        return self.first.fix if self.first else ""

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "ok": self.ok,
            "cause": self.cause,
            "hosts": list(self.hosts),
            "findings": [{**asdict(finding), "docs": f"{DOCS}#{finding.cause}"} for finding in self.findings],
            "groups": self.groups,
            "examined": list(self.hosts_examined),
            "where": self.where,
            "seconds": self.seconds,
            "rehearsed": self.rehearsed,
            "not_rehearsed": self.not_rehearsed,
            "unexplained": list(self.unexplained),
            "network": self.network,
        }


def odd_ones(values: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts whose value differs from that of the majority; all hosts if there is no majority."""
    common, times = Counter(values.values()).most_common(1)[0]
    return tuple(host for host, value in values.items() if value != common or times * 2 <= len(values))
