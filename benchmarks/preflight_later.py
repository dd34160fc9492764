"""Faults written when the rules stood: what preflight said of them at first, kept, and what it says now.

The first look is taken once (`python -m benchmarks.preflight --first-look`): rules that were mended know the fault.
"""

from __future__ import annotations

import json
from pathlib import Path

FIRST = Path(__file__).resolve().parents[1] / "lab/first_look.json"
FIELDS = ("truth", "expected", "where", "said", "said_where", "right", "right_where", "alarm", "all_named")


def known():
    """The first looks, by case."""
    return json.loads(FIRST.read_text()) if FIRST.exists() else {}


def keep(trials):
    """Add first looks; those that are there stay as they are."""
    every = {**{trial["id"]: {name: trial[name] for name in FIELDS} for trial in trials}, **known()}
    lines = ",\n".join(f'"{id}": {json.dumps(every[id])}' for id in sorted(every))
    FIRST.write_text("{\n" + lines + "\n}\n")


def section(first, trials):
    """The part of the page: both scores, then case by case."""
    rows = [(trial, first[trial["id"]]) for trial in trials if trial["id"] in first]
    real = [(now, then) for now, then in rows if now["expected"]]
    pairs = [(now, then) for now, then in real if " + " in now["expected"]]
    harmless = [(now, then) for now, then in rows if not now["expected"]]
    kinds = len({now["name"] for now, _ in rows})

    def line(what, some, name):
        then, now = (f"{sum(bool(trial[name]) for trial in side)} of {len(some)}" for side in _sides(some))
        return f"| {what} | {then} | {now} |"

    return "\n".join([
        "## Faults written after the rules: first look",
        "",
        f"Broken in {kinds} ways that the rules had not been written for, some of them two faults at once that have",
        "nothing to do with each other, on 2 to 5 hosts, on IPv4, IPv6 and both. torchrun's truth was measured first;",
        "then preflight was asked, once, with the rules as they were (`lab/first_look.json`); then the rules",
        "were mended. The first column is what to expect of a fault that nobody thought of.",
        "",
        "| | first look | now |",
        "|---|---|---|",
        line("torchrun fails or is slow: an alarm", real, "alarm"),
        line("right cause first (of a pair: one of both)", real, "right"),
        line("right cause first, right host or link", real, "right_where"),
        line("pairs: both named, each with its host or link", pairs, "all_named"),
        line("torchrun trains fine: an alarm all the same", harmless, "alarm"),
        "",
        "| fault | hosts | torchrun | expected | first look | now |",
        "|---|---|---|---|---|---|",
        *(f"| {now['name']} | {now['count']} | {now['truth']} | {_wanted(now)} | {_named(then)} | {_named(now)} |"
          for now, then in rows),
        "",
    ])  # fmt: skip


def _sides(rows):
    return [then for _, then in rows], [now for now, _ in rows]


def _wanted(trial):
    return f"{trial['expected']} ({trial['where']})" if trial["expected"] else "nothing"


def _named(trial):
    text = f"{trial['said']} ({trial['said_where']})" if trial["said"] else "nothing"
    return text if trial["right_where"] else f"**{text}**"
