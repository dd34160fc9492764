"""The findings of the checks, and their presentation: a table, JSON, an exit code. Pure."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MET, NOT_MET, NOT_TRIED = "met", "NOT met", "not tried"
FORMAT = 1
_WIDTHS = {"check": 10, "what": 40, "measured": 44, "expected": 26}


@dataclass(frozen=True)
class Finding:
    """One attempt: what was tried, how it ended, what was measured, and what was expected.

    If a check could not try something, `measured` says why. `values` are the figures for programs, `words` the end of
    the logs.
    """

    what: str
    state: str
    measured: str
    expected: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class Done:
    """One check that has ended, with all its findings."""

    check: str
    title: str
    seconds: float
    findings: tuple[Finding, ...]


def judge(what: str, good: bool, measured: str, expected: str = "", **values: Any) -> Finding:
    """A finding that is met if `good`."""
    return Finding(what, MET if good else NOT_MET, measured, expected, values)


def untried(what: str, why: str) -> Finding:
    """A finding about something that a check could not try, with the reason."""
    return Finding(what, NOT_TRIED, why)


def counts(checks: Iterable[Done]) -> dict[str, int]:
    """How many findings ended in each state."""
    states = [finding.state for check in checks for finding in check.findings]
    return {state: states.count(state) for state in (MET, NOT_MET, NOT_TRIED)}


def exit_code(checks: Iterable[Done]) -> int:
    """0 if no finding is NOT met, else 1."""
    return 1 if counts(checks)[NOT_MET] else 0


def summary(checks: Sequence[Done], seconds: float) -> str:
    """The last line of the report."""
    number_of = counts(checks)
    return (
        f"{number_of[MET]} met, {number_of[NOT_MET]} NOT met, {number_of[NOT_TRIED]} could not be tried; "
        f"{len(checks)} checks in {seconds:.0f} s"
    )


def as_json(checks: Sequence[Done], machine: dict[str, Any], seconds: float) -> dict[str, Any]:
    """All findings as plain values."""
    return {
        "format": FORMAT,
        "seconds": round(seconds, 1),
        "counts": counts(checks),
        "machine": machine,
        "checks": [asdict(check) for check in checks],
    }


def rows(checks: Iterable[Done]) -> list[tuple[str, str, str, str, str]]:
    """Check, what, measured, expected and state of each finding; only a check's first row contains its name."""
    made = []
    for check in checks:
        for number, finding in enumerate(check.findings):
            name = check.check if number == 0 else ""
            made.append((name, finding.what, finding.measured, finding.expected, finding.state))
    return made


def table(checks: Iterable[Done]) -> str:
    """The findings as plain text in columns; a long cell continues on the lines below it."""
    widths, lines = [*_WIDTHS.values(), len(NOT_TRIED)], []
    for row in [(*_WIDTHS, ""), *rows(checks)]:
        cells = [textwrap.wrap(text, width) for text, width in zip(row, widths, strict=True)]
        for parts in itertools.zip_longest(*cells, fillvalue=""):
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)
