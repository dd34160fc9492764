"""The result of a preflight: the verdict, which puts one finding first. Pure."""

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
    """All findings in order; the first fault is the cause. `groups`: the outcome of each group of checks.

    rehearsed: the result of a rehearsal of the run. not_rehearsed: why there was none. unexplained: failed calls that
    no finding explains, if something is wrong.
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
        """Findings that would keep training from starting or from finishing; the first is the cause."""
        return self._of(FAULT)

    @property
    def warnings(self) -> list[Finding]:
        """Findings that do not stop training."""
        return self._of(WARNING)

    @property
    def unknown(self) -> list[Finding]:
        """Findings about what preflight could not determine."""
        return self._of(UNKNOWN)

    @property
    def problems(self) -> list[Finding]:
        """The faults, then the findings about what preflight could not determine."""
        return [*self.faults, *self.unknown]

    def _of(self, level: str) -> list[Finding]:
        return [finding for finding in self.findings if finding.level == level]

    def obstacles(self, overlooked: Collection[str]) -> list[Finding]:
        """Return the problems, without those whose cause is in `overlooked`: the run can bear these.

        A finding `not-known` is left out only if the run bears every cause that remains possible (`odd`).
        """
        borne = frozenset(overlooked)
        return [finding for finding in self.problems if not borne.issuperset(finding.odd or (finding.cause,))]

    @property
    def ok(self) -> bool:
        """Whether there is no fault, and preflight could determine everything."""
        return not self.problems

    @property
    def first(self) -> Finding | None:
        """The finding that is the cause; None if all is well."""
        return next(iter(self.problems), None)

    @property
    def cause(self) -> str:
        """The slug of the cause; empty if all is well."""
        return self.first.cause if self.first else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts that need the repair."""
        return self.first.hosts if self.first else ()

    @property
    def fix(self) -> str:
        """A command to copy, or what to do."""
        return self.first.fix if self.first else ""

    def json(self) -> dict[str, Any]:
        """Return the output of `--json`."""
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
    """Return the hosts whose value differs from the majority's; all hosts if there is no majority."""
    common, times = Counter(values.values()).most_common(1)[0]
    return tuple(host for host, value in values.items() if value != common or times * 2 <= len(values))
