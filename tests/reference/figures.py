"""Makes docs/evidence/benchmarks.md from benchmarks.csv in the same folder, where `make bench` writes its results."""

from __future__ import annotations

import csv
from itertools import groupby
from pathlib import Path

HOME = Path(__file__).resolve().parents[2]
FIGURES = HOME / "docs/evidence/benchmarks.csv"
HEAD = """\
# Benchmarks

A command measures every figure, and its rival's in the same run, by turns. The median stands first, the least and the
most in brackets. A goal that was missed says `NOT met`. All hosts are containers that share one machine's cores, so
compare a figure only with the one beside it: these are CPUs and gloo, torch 2.13, 2 to 4 cores.

- `make bench` measures one machine (a quarter of an hour), `make bench-hosts` hosts of a rack,
  `python -m benchmarks growth` 2 to 16 of them, `python -m benchmarks.NAME` one figure.
- [benchmarks.csv](benchmarks.csv) has the same rows with notes, and those of programs that only the history has
  (`git show 1d4f6fb3:benchmarks/NAME.py`).
  [rivals-on-faults.csv](rivals-on-faults.csv) compares torchrun, torchft and nvidia-resiliency-ext on a killed and a
  stuck rank: torchft and Muster bring a killed rank back equally fast. Muster names the stuck rank after 2.6 s and
  restarts it after 47 s; nvidia's launcher does after 79 s, torchrun never.
- Preflight has [a page of its own](preflight-score.md), and so have [first words](first-words.md) and
  [explain](explain-score.md).
"""


def figures_page() -> str:
    """The page, with a table for each place, of the figures whose program is in this checkout."""
    with FIGURES.open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if is_there(row["benchmark"])]
    parts = [HEAD]
    for place, several in groupby(rows, lambda row: row["place"]):
        parts += [
            f"## {place}\n",
            "| figure | Muster | rival | ratio | goal | | command |",
            "|---|---|---|---|---|---|---|",
        ]
        parts += [_line(row) for row in several]
        parts.append("")
    return "\n".join(parts)


def is_there(benchmark: str) -> bool:
    """Whether the program that measured a figure is in this checkout."""
    path = HOME / "benchmarks" / benchmark.partition(" ")[0].replace(".", "/")
    return path.is_dir() or path.with_suffix(".py").exists()


def _line(row: dict[str, str]) -> str:
    shown = [row[name] for name in ("figure", "Muster", "rival", "ratio", "goal", "met")]
    cells = [*shown, f"`python -m benchmarks.{row['benchmark']}`"]
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
