"""The page of a preflight: one HTML file that needs no network and no JavaScript. Pure.

Flow: (Answers, Verdict) -> head, findings, grids of all pairs, facts of each host -> templates/preflight.html.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ...causes.finding import FAULT, UNKNOWN, WARNING, Finding
from ...causes.table import DOCS
from ...core.text import listed
from ...preflight import reachability
from ...preflight.answers import WORDS, Answers
from ...preflight.checks import bandwidth
from ...preflight.verdict import Verdict
from ..preflight_text import MARKS, readiness
from . import render
from . import units as words

# `on gpu-b: sudo ufw allow ...   (or the same elsewhere)`; a fix with several such commands stays one text.
ONE_COMMAND = re.compile(r"(on [^:]+): ((?:(?!; on ).)+?)(?: {3}\((.+)\))?")
CLASSES = {"ok": "ok", FAULT: "fault", WARNING: "warning", UNKNOWN: "unknown"}
COLUMNS = ("Host", "Interface", "Address", "Chosen by", "Clock", "torch", "Python", "GPUs", "Machine", "Kernel")
# With more hosts, a cell is a square with its words in its title, and a list below has the bad ones.
WORDED, LINES = 16, 20
Pair = tuple[str, str]


@dataclass(frozen=True)
class GridCell:
    """A pair of hosts in a grid; `slow`, from 0 to 1, is the strength of its colour."""

    text: str
    style: str
    title: str
    slow: str = ""


@dataclass(frozen=True)
class Grid:
    """Each host with each: a row for each calling host; None where a host would call itself."""

    hosts: Sequence[str]
    rows: list[tuple[str, list[GridCell | None]]]
    small: bool
    note: str
    below: Sequence[str] = ()


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


def reach(answers: Answers, faulty: bool) -> Grid | None:
    """Rows call columns; None if no pair was tried. `faulty`: a fault keeps training from starting."""
    known, port = reachability.table(answers), answers.request.port
    if not known:
        return None
    small, bad = len(answers.hosts_with_facts) > WORDED, "fault" if faulty else "warning"
    failed = {pair: text for pair, cell in known.items() if (text := _trouble(cell, port))}
    fastest = dict[Pair, float]()
    for link in answers.links:
        if link.ok and "data" in link.kinds:
            pair = link.source, link.target
            fastest[pair] = min(link.ms, fastest.get(pair, link.ms))

    def cell(pair: Pair) -> GridCell:
        state = bad if pair in failed else "ok" if known[pair].tried else "unknown"
        ok = words.milliseconds(fastest[pair]) if pair in fastest else "ok" if known[pair].tried else "?"
        text = failed.get(pair, ok)
        short = {bad: "✗", "ok": ""}.get(state, "?") if small else text
        return GridCell(short, state, f"{pair[0]} → {pair[1]}: {text}")

    note = f"Rows call, columns are called, at port {port} and the data ports; ms of the fastest data port."
    return Grid(
        answers.hosts_with_facts, _rows(answers.hosts_with_facts, cell), small, note, _in_words(failed) if small else ()
    )


def heat(answers: Answers) -> Grid | None:
    """The rate of every pair, in a stronger colour the slower it is; None if preflight measured none."""
    rates = bandwidth.rates(answers)
    if not rates:
        return None
    middle, small = statistics.median(rates.values()), len(answers.hosts_with_facts) > WORDED

    def cell(pair: Pair) -> GridCell:
        rate = rates.get(pair)
        if rate is None:
            return GridCell("?", "unknown", f"{pair[0]} → {pair[1]}: not measured")
        slow = f"{max(0.0, min(1.0, 1 - rate / middle)) if middle else 0:.2f}"
        text = words.figure(rate)
        return GridCell("" if small else text, "rate", f"{pair[0]} → {pair[1]}: {text} Mbit/s", slow)

    note = f"Mbit/s of one TCP connection, row to column, each pair on its own; the median is {words.figure(middle)}."
    return Grid(
        answers.hosts_with_facts,
        _rows(answers.hosts_with_facts, cell),
        small,
        f"{note} The stronger the colour, the slower.",
    )


def _machine(answers: Answers, host: str) -> tuple[str, str, Sequence[str]]:
    """A host's name, the reason if it has no facts, and its facts by COLUMNS."""
    if host not in answers.facts:
        _, fault = answers.faults.get(host, ("", "it gave no facts"))
        return host, fault, ()
    facts, pick = answers.facts[host], answers.plan.data[host]
    software, resources = facts.get("software", {}), facts.get("resources", {})
    ahead, unsure = answers.clocks.get(host, (None, 0.0))
    clock = "?" if ahead is None else f"{1e3 * ahead:+,.1f} ± {1e3 * unsure:,.1f}{words.GAP}ms"
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
        ", ".join([words.several(resources.get("cores", 0), "core"), *([words.size(memory)] if memory else [])]),
        str(facts.get("kernel", "?")),
    )
    return host, "", values


def _gpus(answer: Mapping[str, Any]) -> str:
    return words.kinds([row[1] for row in answer.get("rows", ()) if len(row) > 1]) or "none"


def _trouble(cell: reachability.Cell, port: int) -> str:
    """The failed calls of a pair in words; empty if all succeeded."""
    tried = {str(port): cell.meet or cell.hint, "data ports": cell.data}
    bad = {name: outcome for name, outcome in tried.items() if outcome not in ("", "ok")}
    if len(bad) == 2 and len(set(bad.values())) == 1:
        return WORDS.get(cell.data, cell.data)
    return ", ".join(f"{name}: {WORDS.get(outcome, outcome)}" for name, outcome in bad.items())


def _in_words(failed: Mapping[Pair, str]) -> list[str]:
    """Pairs and their faults in few lines: by caller or by called host, whichever are fewer."""
    by_source, by_target = dict[Pair, list[str]](), dict[Pair, list[str]]()
    for (source, target), trouble in failed.items():
        by_source.setdefault((source, trouble), []).append(target)
        by_target.setdefault((target, trouble), []).append(source)
    rows = [f"{listed(sources)} → {target}: {trouble}" for (target, trouble), sources in by_target.items()]
    if len(by_source) < len(by_target):
        rows = [f"{source} → {listed(targets)}: {trouble}" for (source, trouble), targets in by_source.items()]
    return rows if len(rows) <= LINES else [*rows[: LINES - 1], f"and {len(rows) - LINES + 1:,} lines more"]


def _rows(hosts: Sequence[str], cell: Callable[[Pair], GridCell]) -> list[tuple[str, list[GridCell | None]]]:
    return [(row, [None if row == column else cell((row, column)) for column in hosts]) for row in hosts]
