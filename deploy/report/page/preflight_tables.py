"""The tables of a preflight's page: each host to each, every pair's rate, and each host's facts. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ...preflight import reachability
from ...preflight.answers import WORDS, Answers
from ...preflight.checks import bandwidth
from ...preflight.findings import listed
from . import units as words
from .html import Html, join, tag

# With more hosts a cell is a square: its words stand in what shows on pointing at it, bad ones in a list below.
WORDED, LINES = 16, 20
Pair = tuple[str, str]


def reach(answers: Answers, faulty: bool) -> Html:
    """A grid: rows call, columns are called. `faulty`: training would not start, so what failed is no mere remark."""
    known, port = reachability.table(answers), answers.want.port
    if not known:
        return Html("")
    small, bad = len(answers.told) > WORDED, "fault" if faulty else "warning"
    failed = {pair: said for pair, one in known.items() if (said := _trouble(one, port))}
    fastest = dict[Pair, float]()
    for link in answers.links:
        if link.ok and "data" in link.kinds:
            pair = link.source, link.target
            fastest[pair] = min(link.ms, fastest.get(pair, link.ms))

    def cell(pair: Pair) -> Html:
        state = bad if pair in failed else "ok" if known[pair].tried else "unknown"
        ok = words.milliseconds(fastest[pair]) if pair in fastest else "ok" if known[pair].tried else "?"
        said = failed.get(pair, ok)
        short = {bad: "✗", "ok": ""}.get(state, "?") if small else said
        return tag("td", short, class_=state, title=f"{pair[0]} → {pair[1]}: {said}")

    note = f"Rows call, columns are called, at port {port} and the data ports; ms of the fastest data port."
    below = [tag("ul", *(tag("li", line) for line in _told(failed)), class_="aside")] if small and failed else []
    return join([_grid(answers.told, cell, small), tag("p", note, class_="aside"), *below])


def heat(answers: Answers) -> Html:
    """Every pair's rate, the stronger in colour the slower against the median; nothing where none was measured."""
    rates = bandwidth.rates(answers)
    if not rates:
        return Html("")
    middle, small = statistics.median(rates.values()), len(answers.told) > WORDED

    def cell(pair: Pair) -> Html:
        rate = rates.get(pair)
        if rate is None:
            return tag("td", "?", class_="unknown", title=f"{pair[0]} → {pair[1]}: not measured")
        slow = f"--slow:{max(0.0, min(1.0, 1 - rate / middle)) if middle else 0:.2f}"
        said = f"{words.figure(rate)} Mbit/s"
        text = "" if small else words.figure(rate)
        return tag("td", text, class_="rate", style=slow, title=f"{pair[0]} → {pair[1]}: {said}")

    note = f"Mbit/s of one TCP connection, row to column, each pair on its own; the median is {words.figure(middle)}."
    return join(
        [_grid(answers.told, cell, small), tag("p", f"{note} The stronger the colour, the slower.", class_="aside")]
    )


def machines(answers: Answers) -> Html:
    """One row a host: the interface that training will use, its clock, what runs there."""
    head = ("Host", "Interface", "Address", "Chosen by", "Clock", "torch", "Python", "GPUs", "Machine", "Kernel")
    rows = [tag("tr", tag("th", host, scope="row"), *_cells(answers, host)) for host in answers.hosts]
    top = tag("thead", tag("tr", *(tag("th", name, scope="col") for name in head)))
    note = "Clock: ahead of the machine that asked, and how far that may be off."
    table = tag("div", tag("table", top, tag("tbody", *rows), class_="machines"), class_="wide")
    return join([table, tag("p", note, class_="aside")])


def _cells(answers: Answers, host: str) -> list[Html]:
    if host not in answers.facts:
        _, said = answers.faults.get(host, ("", "it gave no facts"))
        return [tag("td", said, colspan="9", class_="fault")]
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
    return [tag("td", value) for value in values]


def _gpus(said: Mapping[str, Any]) -> str:
    names = [row[1] for row in said.get("rows", ()) if len(row) > 1]
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names)) or "none"


def _trouble(cell: reachability.Cell, port: int) -> str:
    """What did not get through, in words; empty where all did."""
    tried = {str(port): cell.meet or cell.hint, "data ports": cell.data}
    bad = {name: outcome for name, outcome in tried.items() if outcome not in ("", "ok")}
    if len(bad) == 2 and len(set(bad.values())) == 1:
        return WORDS.get(cell.data, cell.data)
    return ", ".join(f"{name}: {WORDS.get(outcome, outcome)}" for name, outcome in bad.items())


def _told(failed: Mapping[Pair, str]) -> list[str]:
    """Pairs and their trouble in few lines: by who calls, or by who is called, whichever are fewer."""
    by_source, by_target = dict[Pair, list[str]](), dict[Pair, list[str]]()
    for (source, target), said in failed.items():
        by_source.setdefault((source, said), []).append(target)
        by_target.setdefault((target, said), []).append(source)
    rows = [f"{listed(sources)} → {target}: {said}" for (target, said), sources in by_target.items()]
    if len(by_source) < len(by_target):
        rows = [f"{source} → {listed(targets)}: {said}" for (source, said), targets in by_source.items()]
    return rows if len(rows) <= LINES else [*rows[: LINES - 1], f"and {len(rows) - LINES + 1:,} lines more"]


def _grid(hosts: Sequence[str], cell: Callable[[Pair], Html], small: bool) -> Html:
    top = tag("tr", tag("td"), *(tag("th", tag("span", host), scope="col") for host in hosts))
    rows = [
        tag(
            "tr",
            tag("th", source, scope="row"),
            *(tag("td", class_="self") if source == target else cell((source, target)) for target in hosts),
        )
        for source in hosts
    ]
    return tag(
        "div", tag("table", tag("thead", top), tag("tbody", *rows), class_=f"grid{' small' * small}"), class_="wide"
    )
