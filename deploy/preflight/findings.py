"""What preflight has to say: findings, and the verdict that puts one of them first. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from .causes import CAUSES

FAULT, WARNING, UNKNOWN = "fault", "warning", "could not tell"
GROUPS = ("hosts", "software", "gpus", "names", "interfaces", "links", "mtu", "ports", "clocks", "resources", "proof")
DOCS = "docs/troubleshooting.md"


@dataclass(frozen=True)
class Finding:
    """One thing that is wrong, or may be, or could not be told.

    cause: a slug, the name of its entry in docs/troubleshooting.md. hosts: what to repair. link: (from, to), where it
    is about one. symptom: how training would show it. fix: a command to copy, or what to do. follows: what else was
    seen and is explained by this. cells: the pairs (from, to) whose failed calls it explains. odd: for a verdict
    that knows no cause, what is odd, by slug. explains: how much of what failed it explains, in words. or_else: what
    else has the same outcome, where the cause is inferred and nothing singles it out (alternatives.py).
    """

    cause: str
    group: str
    hosts: tuple[str, ...]
    text: str
    evidence: tuple[str, ...] = ()
    symptom: str = ""
    fix: str = ""
    level: str = FAULT
    link: tuple[str, str] | None = None
    direction: str = ""
    follows: tuple[str, ...] = ()
    cells: tuple[tuple[str, str], ...] = ()
    odd: tuple[str, ...] = ()
    explains: str = ""
    or_else: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Raise ValueError for a cause that has no entry."""
        if self.cause not in CAUSES:
            raise ValueError(f"{self.cause}: no such cause; add it to causes.py and to {DOCS}")


@dataclass(frozen=True)
class Verdict:
    """All findings in order; the first fault is the cause. `groups`: outcome of each group of checks.

    rehearsed: what a rehearsal of the run has shown. not_rehearsed: why there was none. burned: a line for each GPU.
    Where not all is well: differ: what differs between the hosts; unexplained: failed calls that no finding explains.
    """

    findings: tuple[Finding, ...]
    groups: dict[str, str] = field(default_factory=dict)
    hosts_examined: tuple[str, ...] = ()
    seconds: float = 0.0
    where: str = ""
    rehearsed: str = ""
    not_rehearsed: str = ""
    differ: tuple[str, ...] = ()
    unexplained: tuple[str, ...] = ()
    network: str = ""
    burned: tuple[str, ...] = ()

    @property
    def faults(self) -> list[Finding]:
        """What would keep training from starting, or from ending; the first is the cause."""
        return [finding for finding in self.findings if finding.level == FAULT]

    @property
    def warnings(self) -> list[Finding]:
        """What does not stop training."""
        return [finding for finding in self.findings if finding.level == WARNING]

    @property
    def unknown(self) -> list[Finding]:
        """What could not be told."""
        return [finding for finding in self.findings if finding.level == UNKNOWN]

    def obstacles(self, overlooked: Collection[str]) -> list[Finding]:
        """The faults, and what could not be told, for a run that bears the causes in `overlooked`.

        Of `not-known`, the run must bear every cause that is left.
        """
        borne = frozenset(overlooked)
        problems = [*self.faults, *self.unknown]
        return [finding for finding in problems if not borne.issuperset(finding.odd or (finding.cause,))]

    @property
    def ok(self) -> bool:
        """No fault, and nothing that could not be told."""
        return not self.faults and not self.unknown

    @property
    def first(self) -> Finding | None:
        """The cause, whole."""
        return next(iter([*self.faults, *self.unknown]), None)

    @property
    def cause(self) -> str:
        """The slug of the cause; empty if all is well."""
        return self.first.cause if self.first else ""

    @property
    def hosts(self) -> tuple[str, ...]:
        """The hosts to repair."""
        return self.first.hosts if self.first else ()

    @property
    def link(self) -> tuple[str, str] | None:
        """(from, to), where the cause is about one link."""
        return self.first.link if self.first else None

    @property
    def direction(self) -> str:
        """`one-way` or `both` for a link, else empty."""
        return self.first.direction if self.first else ""

    @property
    def evidence(self) -> tuple[str, ...]:
        """What was seen."""
        return self.first.evidence if self.first else ()

    @property
    def symptom(self) -> str:
        """How it would show in training."""
        return self.first.symptom if self.first else ""

    @property
    def fix(self) -> str:
        """A command to copy, or what to do."""
        return self.first.fix if self.first else ""

    @property
    def others(self) -> list[Finding]:
        """Further faults that the first does not explain."""
        return self.faults[1:]

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
            "differ": list(self.differ),
            "unexplained": list(self.unexplained),
            "network": self.network,
            "burned": list(self.burned),
        }


def odd_ones(values: Mapping[str, str]) -> tuple[str, ...]:
    """The hosts whose value differs from that of the majority; all hosts if there is no majority."""
    common, times = Counter(values.values()).most_common(1)[0]
    return tuple(host for host, value in values.items() if value != common or times * 2 <= len(values))
