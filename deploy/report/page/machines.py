"""What each node's machine did during the run, from telemetry/<node>.jsonl: a row of cells, and charts. Pure.

Flow: the lines of a node -> how busy it was, and one chart for each measure -> templates/run.html. data.py has already
left out rows that do not follow contract.md (it reads them with run/events.py).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, pairwise
from operator import methodcaller
from statistics import fmean

from ...core import text as words
from ...run.events import gpu_use
from .charts import Chart, Drawing, Series, draw
from .data import Fields

# At most NODES nodes are shown; with up to FEW nodes, charts also have lines for the lowest and the highest GPU. A
# measure has at most POINTS points over all nodes, and LINE points in a line. So a page with hundreds of GPUs opens.
NODES, FEW, POINTS, LINE = 256, 16, 1920, 240
# How many cells a node's row has, and how many strengths of colour.
CELLS, LEVELS = 90, 5
_GIGA, _MEGA = 1e9, 1e6
# One chart for each measure of the GPUs or the node: title, unit, field, factor to that unit, upper end of the axis.
MEASURES = (
    ("GPU use", "%", "use_percent", 1.0, 100.0),
    ("GPU memory", "GB", "memory_bytes", 1 / _GIGA, None),
    ("GPU power", "W", "power_w", 1.0, None),
    ("GPU temperature", "°C", "celsius", 1.0, None),
    ("GPU clock", "MHz", "sm_mhz", 1.0, None),
    ("CPU", "%", "cpu_percent", 1.0, 100.0),
    ("Memory", "GB", "memory_bytes", 1 / _GIGA, None),
)
# A line of telemetry: when it was written, in the charts' unit of time, and its fields.
Line = tuple[float, Fields]


def kinds(names: Sequence[str]) -> str:
    """Each name once, with how often it occurs: `8 × A100, 2 × T4`."""
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names) if name)


def seconds_of(rows: Sequence[Fields]) -> list[float]:
    """How many seconds each line of a node counts for: in a long run, lines get rarer.

    A line before or after a pause does not count for the pause.
    """
    between = [max(1e-3, after["t"] - row["t"]) for row, after in pairwise(rows)]
    if not between:
        return [1.0] * len(rows)
    return [min(pair) for pair in zip([between[0], *between], [*between, between[-1]], strict=True)]


def mean_use(rows: Sequence[Fields], use: Callable[[Fields], float | None]) -> float | None:
    """The mean of a value over the time of a node's lines; None if no line has the value."""
    known = [
        (value, seconds) for row, seconds in zip(rows, seconds_of(rows), strict=True) if (value := use(row)) is not None
    ]
    return fmean(*zip(*known, strict=True)) if known else None


def section(telemetry: dict[str, list[Fields]], start: float | None) -> Fields:
    """The nodes that the page shows, and how many it leaves out; empty if no node wrote two lines.

    `start`: where the time axis begins, in Unix seconds.
    """
    lines = {node: rows for node, rows in sorted(telemetry.items()) if len(rows) > 1}
    if not lines:
        return {}
    firsts = [rows[0]["t"] for rows in lines.values()]
    begin = min(firsts if start is None else [start, *firsts])
    span = max(rows[-1]["t"] for rows in lines.values()) - begin
    unit, scale = ("s", 1.0) if span < 600 else ("min", 60.0) if span < 3 * 3600 else ("h", 3600.0)
    shown = list(lines.items())[:NODES]
    most, cells = max(8, min(LINE, POINTS // len(shown))), min(CELLS, max(len(rows) for _, rows in shown))
    on_gpus = any(gpu_use(row) is not None for _, rows in shown for row in rows)
    use: Callable[[Fields], float | None] = gpu_use if on_gpus else methodcaller("get", "cpu_percent")
    machines = []
    for node, rows in shown:
        drawn = [((row["t"] - begin) / scale, row) for row in rows[:: -(-len(rows) // most)]]
        machines.append(
            {
                "node": node,
                **_heat([((row["t"] - begin) / (span or 1.0), use(row)) for row in rows], cells),
                "mean": "" if (known := mean_use(rows, use)) is None else f"{known:.0f} %",
                "facts": _facts(rows),
                "charts": _charts(drawn, unit, len(shown) > FEW),
            }
        )
    return {
        "shown": machines,
        "left_out": len(lines) - len(shown),
        "what": "GPU use" if on_gpus else "CPU use",
        "cells": cells,
        "levels": range(LEVELS),
        "lasts": words.duration(span),
    }


def _heat(points: Sequence[tuple[float, float | None]], cells: int) -> Fields:
    """A row of cells, as one path for each strength of colour; an empty cell repeats the one before it.

    `points`: pairs of a share of the run's time (0 to 1) and a percentage.
    """
    by_cell, paths = defaultdict[int, list[float]](list), defaultdict[int, str](str)
    for at, value in points:
        if value is not None:
            by_cell[max(0, min(cells - 1, int(at * cells)))].append(value)  # a clock may be behind the start
    for cell in range(cells):
        if values := by_cell.get(cell) or by_cell.get(cell - 1):
            paths[min(LEVELS - 1, int(fmean(values) / 100 * LEVELS))] += f"M{cell} .5h1"
    uses = [*chain(*by_cell.values())]
    return {"paths": sorted(paths.items()), "ends": f"{min(uses):.0f} to {max(uses):.0f} %" if uses else "not known"}


def _charts(lines: Sequence[Line], unit: str, means_alone: bool) -> list[Drawing]:
    """One node's charts, leaving out charts without points."""
    charts = (*_of_measures(lines, means_alone), *_of_network(lines))
    steps = (lines[0][0], lines[-1][0])
    return [drawing for chart in charts if (drawing := draw(replace(chart, axis=unit, steps=steps)))]


def _of_measures(lines: Sequence[Line], means_alone: bool) -> Iterator[Chart]:
    """One chart for each measure. For several GPUs: their mean, and faint behind it the lowest and the highest."""
    limit = max(row.get("memory_limit_bytes", 0) for _, row in lines)
    for title, unit, name, scale, top in MEASURES:
        parts = [(t, row.get("gpus", ()) if title.startswith("GPU") else [row]) for t, row in lines]
        known = [(t, values) for t, each in parts if (values := [part[name] * scale for part in each if name in part])]
        several = max((len(values) for _, values in known), default=0)
        of: dict[str, Callable[[list[float]], float]] = {"mean" if several > 1 else title: fmean}
        if several > 1 and not means_alone:
            of = {"least": min, "most": max, **of}
        series = [
            Series(name, [(t, end(values)) for t, values in known], "mean" if end is fmean else "faint")
            for name, end in of.items()
        ]
        more = (
            f", mean of {several}" if several > 1 else f" of {words.amount(limit)}" * (title == "Memory" and limit > 0)
        )
        yield Chart(title, unit, series, note=unit + more, zero=unit != "°C", top=top, legend=False)


def _of_network(lines: Sequence[Line]) -> Iterator[Chart]:
    """A chart of the traffic on the busiest network interface."""
    moved = Counter[str]()
    for _, row in lines:
        moved.update({name: sum(rates) for name, rates in row.get("network", {}).items()})
    for name, _ in moved.most_common(1):
        ways = [(t, row["network"][name]) for t, row in lines if name in row.get("network", {})]
        received, sent = ([(t, rates[way] / _MEGA) for t, rates in ways] for way in (0, 1))
        yield Chart(f"Network {name}", "MB/s", [Series("received", received), Series("sent", sent, "faint")], zero=True)


def _facts(rows: Sequence[Fields]) -> list[tuple[str, str]]:
    """Facts about a node, some empty: its GPUs, what slowed them down and how often, why Muster cannot see them."""
    last = rows[-1]
    names = [gpu.get("name", "") for gpu in last.get("gpus", [])]
    throttled = [{reason for gpu in row.get("gpus", []) for reason in gpu.get("throttled", [])} for row in rows]
    shares = {why: fmean([why in each for each in throttled], seconds_of(rows)) for why in set().union(*throttled)}
    slowed = [f"{reason} {words.percent(share)} of the time" for reason, share in sorted(shares.items())]
    return [("GPUs", kinds(names)), ("Slowed by", ", ".join(slowed)), ("GPUs", last.get("gpu_unseen", ""))]
