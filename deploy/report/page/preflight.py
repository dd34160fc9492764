"""The page for a preflight: one HTML file that needs no network and no JavaScript. Pure.

Flow: (Answers, Verdict) -> grids of all pairs -> templates/preflight.html, which has the words.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping
from typing import Any

from ...causes.finding import Finding
from ...causes.table import READ
from ...core import text as words
from ...core.text import listed
from ...preflight import reachability
from ...preflight.answers import WORDS, Answers
from ...preflight.checks import bandwidth
from ...preflight.verdict import Verdict
from ..preflight_text import MARKS, readiness
from . import render
from .machines import kinds

# A fix with one command: `on gpu-b: sudo ufw allow ...   (or the same elsewhere)`. A fix with several stays one text.
ONE_COMMAND = re.compile(r"(on [^:]+): ((?:(?!; on ).)+?)(?: {3}\((.+)\))?")
# With more hosts than this, a cell is a square, and its words are in its title.
WORDED = 16
Pair = tuple[str, str]
# The cell for a pair of hosts: its words, its class, and the strength of its colour, from 0 to 1.
Cell = tuple[str, str, str]


def build(answers: Answers, verdict: Verdict) -> str:
    """The whole page."""
    first, plan = verdict.first, answers.plan
    endpoint = f"[{plan.endpoint}]" if ":" in plan.endpoint else plan.endpoint or answers.request.endpoint
    return render.page(
        "preflight.html",
        f"preflight of {listed(answers.hosts)}",
        style="preflight.css",
        answers=answers,
        verdict=verdict,
        # If the cause is not certain, the page shows what was seen, because that is certain.
        seen=first and bool(verdict.faults or first.or_else),
        ready=readiness(verdict),
        meets=f"{endpoint}:{answers.request.port} ({answers.rendezvous_host})",
        marks=MARKS,
        fix_of=fix_of,
        read=READ,
        reach=reach(answers, not verdict.ok),
        rates=heat(answers),
        gpus_of=_gpus,
    )


def fix_of(finding: Finding) -> tuple[str, str, str]:
    """A fix as: where to type its command, the command, and a note. A fix without one command is a whole text."""
    known = ONE_COMMAND.fullmatch(finding.fix)
    return (known[1], known[2], known[3] or "") if known else ("", finding.fix, "")


def reach(answers: Answers, faulty: bool) -> dict[str, Any]:
    """The grid of which host reaches which (rows call columns); empty if no pair was tried.

    `faulty`: a fault keeps training from starting.
    """
    known, bad = reachability.table(answers), "fault" if faulty else "warning"
    fastest = dict[Pair, float]()
    for link in answers.links:
        if link.ok and "data" in link.kinds:
            fastest[link.ends] = min(link.ms, fastest.get(link.ends, link.ms))

    def cell(pair: Pair) -> Cell:
        if trouble := _trouble(known[pair], answers.request.port):
            return trouble, bad, ""
        if not known[pair].outcomes:
            return "?", "unknown", ""
        return words.milliseconds(fastest[pair]) if pair in fastest else "ok", "ok", ""

    port = answers.request.port
    note = (
        f"Each row's host connects to each column's host, on port {port} and the data ports; ms of the fastest "
        "data port."
    )
    return _grid(answers, cell, note) if known else {}


def heat(answers: Answers) -> dict[str, Any]:
    """The grid of every pair's rate: the slower, the stronger the colour. Empty if preflight measured none."""
    rates = bandwidth.rates(answers)
    if not rates:
        return {}
    middle = statistics.median(rates.values())

    def cell(pair: Pair) -> Cell:
        if (rate := rates.get(pair)) is None:
            return "not measured", "unknown", ""
        slow = max(0.0, min(1.0, 1 - rate / middle)) if middle else 0.0
        return f"{words.figure(rate)} Mbit/s", "rate", f"{slow:.2f}"

    note = f"One TCP connection from row to column, one pair at a time; the median is {words.figure(middle)} Mbit/s."
    return _grid(answers, cell, f"{note} The stronger the colour, the slower.")


def _grid(answers: Answers, cell: Callable[[Pair], Cell], note: str) -> dict[str, Any]:
    """A grid of all pairs of hosts: a row for each calling host; None in the cell where a host would call itself."""
    hosts = answers.hosts_with_facts
    rows = [(row, [None if row == column else (column, *cell((row, column))) for column in hosts]) for row in hosts]
    return {"hosts": hosts, "rows": rows, "small": len(hosts) > WORDED, "note": note}


def _gpus(facts: Mapping[str, Any]) -> str:
    return kinds([row[1] for row in (facts.get("gpus") or {}).get("rows", ()) if len(row) > 1]) or "none"


def _trouble(cell: reachability.Cell, port: int) -> str:
    """The failed calls of a pair in words; empty if all succeeded."""
    tried = {str(port): cell.meet or cell.hint, "data ports": cell.data}
    bad = {name: outcome for name, outcome in tried.items() if outcome not in ("", "ok")}
    if len(bad) == 2 and len(set(bad.values())) == 1:
        return WORDS.get(cell.data, cell.data)
    return ", ".join(f"{name}: {WORDS.get(outcome, outcome)}" for name, outcome in bad.items())
