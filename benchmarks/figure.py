"""The result of a benchmark, its table, and how to run one benchmark alone: `python -m benchmarks.NAME [--quick]`."""

from __future__ import annotations

import argparse
import json
import signal
import statistics
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from benchmarks import venv

Measure = Callable[[bool], dict[str, Any]]


@dataclass(frozen=True)
class Row:
    """One line of a figure. `met` is None if there is no target, or it cannot be measured (`ours` says why)."""

    what: str
    ours: str
    rival: str = ""
    ratio: str = ""
    target: str = ""
    met: bool | None = None


def result(rows: list[Row], notes: Sequence[str] = ()) -> dict[str, Any]:
    """The return value of `measure`: plain values that JSON can hold."""
    return {"rows": [asdict(row) for row in rows], "notes": list(notes)}


def word(met: bool | None) -> str:
    """Whether the target is met, in words; empty if there is none."""
    return {True: "met", False: "NOT met", None: ""}[met]


def cells(row: dict[str, Any]) -> list[str]:
    """A row, in the columns of `HEAD`."""
    return [row["what"], row["ours"], row["rival"], row["ratio"], row["target"], word(row["met"])]


HEAD = ["figure", "Muster", "rival", "ratio", "reach", ""]


def table(figures: dict[str, Any]) -> str:
    """The figure as plain text in columns, with its notes below."""
    lines = [HEAD, *map(cells, figures["rows"])]
    widths = [max(len(line[column]) for line in lines) for column in range(len(HEAD))]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([*text, *(f"  {note}" for note in figures["notes"])])


def spread(values: Sequence[float], form: str = ".2f") -> str:
    """The median, and in brackets the minimum and the maximum."""
    return f"{statistics.median(values):{form}} ({min(values):{form}}-{max(values):{form}})"


def say(text: str) -> None:
    """Print the progress of a measurement on standard error."""
    print(f"  .. {text}", file=sys.stderr, flush=True)


def stop_like_ctrl_c() -> None:
    """Let SIGTERM unwind the program as Ctrl-C does, so that it ends everything that it has started."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


def alone(measure: Measure, title: str | None) -> None:
    """Run one benchmark and print its table; with --json, print the figures themselves."""
    command = argparse.ArgumentParser(description=title)
    command.add_argument("--quick", action="store_true", help="fewer repetitions")
    command.add_argument("--json", action="store_true", help="the figures as JSON on standard output")
    options = command.parse_args()
    venv.enter()
    stop_like_ctrl_c()
    began = time.monotonic()
    try:
        figures = measure(options.quick)
    except KeyboardInterrupt:
        sys.exit(130)
    print(json.dumps(figures) if options.json else table(figures))
    say(f"took {time.monotonic() - began:.0f} s")
