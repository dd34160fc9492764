"""What a check finds, and how findings read: as a table, as JSON, as an exit code. Pure."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

MET, NOT_MET, NOT_TRIED = "met", "NOT met", "not tried"
FORMAT = 1
_WIDTHS = {"check": 10, "what": 40, "measured": 44, "expected": 26}


@dataclass(frozen=True)
class Finding:
    """One thing that was tried: what, how it ended, what was measured, and what was expected.

    Of what could not be tried `measured` says why. `values` are the figures for programs, `words` the end of the logs.
    """

    what: str
    state: str
    measured: str
    expected: str = ""
    values: dict[str, Any] = field(default_factory=dict)
    words: str = ""


@dataclass(frozen=True)
class Done:
    """One check that has ended, with all that it found."""

    check: str
    title: str
    seconds: float
    findings: tuple[Finding, ...]


def judge(what: str, good: bool, measured: str, expected: str = "", **values: Any) -> Finding:
    """A finding that is met where `good`."""
    return Finding(what, MET if good else NOT_MET, measured, expected, values)


def untried(what: str, why: str) -> Finding:
    """A finding of what could not be tried, and why."""
    return Finding(what, NOT_TRIED, why)


def counts(checks: Iterable[Done]) -> dict[str, int]:
    """How many findings ended in each state."""
    states = [finding.state for check in checks for finding in check.findings]
    return {state: states.count(state) for state in (MET, NOT_MET, NOT_TRIED)}


def exit_code(checks: Iterable[Done]) -> int:
    """0 where nothing was not met."""
    return 1 if counts(checks)[NOT_MET] else 0


def summary(checks: Sequence[Done], seconds: float) -> str:
    """The last line."""
    number_of = counts(checks)
    return (
        f"{number_of[MET]} met, {number_of[NOT_MET]} NOT met, {number_of[NOT_TRIED]} could not be tried; "
        f"{len(checks)} checks in {seconds:.0f} s"
    )


def as_json(checks: Sequence[Done], machine: dict[str, Any], seconds: float) -> dict[str, Any]:
    """The whole as plain values."""
    return {
        "format": FORMAT,
        "seconds": round(seconds, 1),
        "counts": counts(checks),
        "machine": machine,
        "checks": [asdict(check) for check in checks],
    }


def rows(checks: Iterable[Done]) -> list[tuple[str, str, str, str, str]]:
    """Check, what, measured, expected and state of each finding; a check is named in its first row alone."""
    made = []
    for check in checks:
        for number, finding in enumerate(check.findings):
            name = check.check if number == 0 else ""
            made.append((name, finding.what, finding.measured, finding.expected, finding.state))
    return made


def table(checks: Iterable[Done]) -> str:
    """The findings as plain text in columns; long cells are continued below themselves."""
    lines = []
    for row in [("check", "what", "measured", "expected", ""), *rows(checks)]:
        cells = [textwrap.wrap(text, width) or [""] for text, width in zip(row[:4], _WIDTHS.values(), strict=True)] + [
            [row[4]]
        ]
        for number in range(max(map(len, cells))):
            parts = [cell[number] if number < len(cell) else "" for cell in cells]
            widths = [*_WIDTHS.values(), 0]
            lines.append("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip())
    return "\n".join(lines)
