"""The page of a preflight: one HTML file that needs no network and no JavaScript. Pure.

Flow: (Answers, Verdict) -> head, findings, grids of all pairs, facts of each host -> templates/preflight.html.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ...causes.table import DOCS
from ...core import text as words
from ...core.text import listed
from ...preflight import reachability
from ...preflight.answers import WORDS, Answers
from ...preflight.checks import bandwidth
from ...preflight.verdict import Verdict
from ..preflight_text import MARKS, readiness
from . import render
from .machines import kinds

# `on gpu-b: sudo ufw allow ...   (or the same elsewhere)`; a fix with several such commands stays one text.
ONE_COMMAND = re.compile(r"(on [^:]+): ((?:(?!; on ).)+?)(?: {3}\((.+)\))?")
CLASSES = {"ok": "ok", FAULT: "fault", WARNING: "warning", UNKNOWN: "unknown"}
COLUMNS = ("Host", "Interface", "Address", "Chosen by", "Clock", "torch", "Python", "GPUs", "Machine", "Kernel")
# With more hosts, a cell is a square with its words in its title.
WORDED = 16
Pair = tuple[str, str]
# Of a pair of hosts: its words, its class, and how strong its colour is, from 0 to 1.
Cell = tuple[str, str, str]


def build(answers: Answers, verdict: Verdict) -> str:
    """The whole page."""
    endpoint = f"[{answers.plan.endpoint}]" if ":" in answers.plan.endpoint else answers.plan.endpoint
    return render.page(
        "preflight.html",
        f"preflight of {listed(answers.hosts)}",
        ["page.css", "preflight.css"],
        hosts=listed(answers.hosts),
        head=_head(verdict),
        groups=[(name, level, MARKS[level], CLASSES[level]) for name, level in verdict.groups.items() if level],
        facts={
            "Meets at": f"{endpoint or answers.request.endpoint}:{answers.request.port} ({answers.meeting})",
            "Backend": answers.request.backend,
            "Looked": verdict.where,
            "Took": words.duration(verdict.seconds),
        },
        findings=[_finding(finding) for finding in (*verdict.faults, *verdict.unknown)],
        warnings=verdict.warnings,
        reach=reach(answers, not verdict.ok),
        rates=heat(answers),
        columns=COLUMNS,
        machines=[_machine(answers, host) for host in answers.hosts],
    )


def _head(verdict: Verdict) -> dict[str, str]:
    """The verdict in a word and a sentence, with its mark and the classes of page.css."""
    cause = verdict.first
    if not cause:
        word, text = (f"{part[:1].upper()}{part[1:]}" for part in readiness(verdict))
        return {"word": word, "mark": MARKS["ok"], "state": "done", "text": f"{text}.", "style": "finding"}
    # Where the cause alone is not sure, what was seen is.
    seen = bool(verdict.faults or cause.or_else)
    word, state = ("Not ready", "failed") if seen else ("Could not tell", "unknown")
    return {"word": word, "mark": MARKS[cause.level], "state": state, "text": cause.text, "style": "trouble"}


def _finding(finding: Finding) -> dict[str, Any]:
    """A finding: the reason, the command to copy, the host for it, and where to read more."""
    known = ONE_COMMAND.fullmatch(finding.fix)
    where, command, note = known.groups("") if known else ("", finding.fix, "")
    rows = {
        "Evidence": finding.evidence,
        "Not sure: or": finding.or_else,
        "Would show as": (finding.symptom,),
        "So also": finding.follows,
    }
    return {
        "text": finding.text,
        "unsure": finding.level == UNKNOWN and not finding.or_else,
        "rows": [(name, list(filter(None, lines))) for name, lines in rows.items() if any(lines)],
        **{"where": where, "command": command, "note": note, "more": f"{DOCS}#{finding.cause}"},
    }


def reach(answers: Answers, faulty: bool) -> dict[str, Any]:
    """Rows call columns; empty if no pair was tried. `faulty`: a fault keeps training from starting."""
    known, bad = reachability.table(answers), "fault" if faulty else "warning"
    fastest = dict[Pair, float]()
    for link in answers.links:
        if link.ok and "data" in link.kinds:
            fastest[link.ends] = min(link.ms, fastest.get(link.ends, link.ms))

    def cell(pair: Pair) -> Cell:
        if trouble := _trouble(known[pair], answers.request.port):
            return trouble, bad, ""
        if not known[pair].tried:
            return "?", "unknown", ""
        return words.milliseconds(fastest[pair]) if pair in fastest else "ok", "ok", ""

    port = answers.request.port
    note = f"Rows call, columns are called, at port {port} and the data ports; ms of the fastest data port."
    return _grid(answers, cell, note) if known else {}


def heat(answers: Answers) -> dict[str, Any]:
    """The rate of every pair, in a stronger colour the slower it is; empty if preflight measured none."""
    rates = bandwidth.rates(answers)
    if not rates:
        return {}
    middle = statistics.median(rates.values())

    def cell(pair: Pair) -> Cell:
        if (rate := rates.get(pair)) is None:
            return "not measured", "unknown", ""
        slow = max(0.0, min(1.0, 1 - rate / middle)) if middle else 0.0
        return f"{words.figure(rate)} Mbit/s", "rate", f"{slow:.2f}"

    note = f"One TCP connection, row to column, each pair on its own; the median is {words.figure(middle)} Mbit/s."
    return _grid(answers, cell, f"{note} The stronger the colour, the slower.")


def _grid(answers: Answers, cell: Callable[[Pair], Cell], note: str) -> dict[str, Any]:
    """Each host with each: a row for each calling host; None where a host would call itself."""
    hosts = answers.hosts_with_facts
    rows = [(row, [None if row == column else (column, *cell((row, column))) for column in hosts]) for row in hosts]
    return {"hosts": hosts, "rows": rows, "small": len(hosts) > WORDED, "note": note}


def _machine(answers: Answers, host: str) -> tuple[str, str, Sequence[str]]:
    """A host's name, the reason if it has no facts, and its facts by COLUMNS."""
    if host not in answers.facts:
        _, fault = answers.faults.get(host, ("", "it gave no facts"))
        return host, fault, ()
    facts, pick = answers.facts[host], answers.plan.data[host]
    software, resources = facts.get("software", {}), facts.get("resources", {})
    ahead, unsure = answers.clocks.get(host, (None, 0.0))
    clock = "?" if ahead is None else f"{1e3 * ahead:+,.1f} ± {1e3 * unsure:,.1f} ms"
    own = facts.get("interfaces", {}).get(pick.interface, {})
    interface = f"{pick.interface} (MTU {own['mtu']})" if own else pick.interface or "?"
    memory = resources.get("memory", {}).get("MemTotal")
    values = (
        interface,
        pick.address or "?",
        pick.how,
        clock,
        software.get("torch", "not there"),
        software.get("python", "?"),
        _gpus(facts.get("gpus") or {}),
        ", ".join([words.several(resources.get("cores", 0), "core"), *([words.amount(memory)] if memory else [])]),
        str(facts.get("kernel", "?")),
    )
    return host, "", values


def _gpus(answer: Mapping[str, Any]) -> str:
    return kinds([row[1] for row in answer.get("rows", ()) if len(row) > 1]) or "none"


def _trouble(cell: reachability.Cell, port: int) -> str:
    """The failed calls of a pair in words; empty if all succeeded."""
    tried = {str(port): cell.meet or cell.hint, "data ports": cell.data}
    bad = {name: outcome for name, outcome in tried.items() if outcome not in ("", "ok")}
    if len(bad) == 2 and len(set(bad.values())) == 1:
        return WORDS.get(cell.data, cell.data)
    return ", ".join(f"{name}: {WORDS.get(outcome, outcome)}" for name, outcome in bad.items())
