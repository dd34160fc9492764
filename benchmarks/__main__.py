"""`python -m benchmarks [hosts|growth] [--quick]`, as in `make bench`: measure, and write docs/evidence/.

Without an argument: the figures of this machine; `hosts`: those of real hosts, for which the rack stands in;
`growth`: those of 2 to 16 hosts.
"""

from __future__ import annotations

import argparse
import csv
import importlib
import platform
import subprocess
import sys
import time
import traceback
from typing import Any

from benchmarks import drills, venv
from benchmarks.figure import Row, cells, result, say, stop_like_ctrl_c, table

FIGURES = {
    "bench": (
        "data_parallel",
        "throughput",
        "startup",
        "drills all",
        "drills rank",
        "drills cut",
        "corruption",
        "checkpoint_stall",
        "watch_cost",
    ),
    "bench-hosts": ("push", "folder", "first_step", "packages_bare", "board", "drills host"),
    "bench-growth": ("growth",),
}
FILE = venv.HOME / "docs/evidence/benchmarks.csv"
COLUMNS = ["place", "date", "figure", "Muster", "rival", "ratio", "goal", "met", "benchmark", "note"]
PLACES = {"bench": "One machine", "bench-hosts": "Real hosts", "bench-growth": "Growth"}


def main() -> int:
    """Measure, print, write.

    Returns 1 if a benchmark crashed (a figure that misses its goal is a finding, not a fault).
    """
    command = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    command.add_argument("what", nargs="?", choices=["hosts", "growth"], help="the figures of real hosts, of many")
    command.add_argument("--quick", action="store_true", help="fewer repetitions; the file stays as it is")
    options = command.parse_args()
    target = f"bench-{options.what}" if options.what else "bench"
    venv.enter()
    stop_like_ctrl_c()
    began, broken, sections = time.monotonic(), 0, []
    try:
        for name in FIGURES[target]:
            say(name)
            found, well = _measure(name, options.quick)
            broken += not well
            print(f"\n{name}\n{table(found)}", flush=True)
            sections.append((name, found))
    except KeyboardInterrupt:
        say("stopped: docs/evidence/benchmarks.csv stays as it was")
        return 130
    minutes = (time.monotonic() - began) / 60
    if not options.quick:
        _write(_rows(target, sections))
    written = "" if options.quick else f", written to {FILE.name}; python -m tests.reference makes the page"
    say(f"{minutes:.1f} minutes{written}")
    return int(broken > 0)


def _measure(name: str, quick: bool) -> tuple[dict[str, Any], bool]:
    """The figure, and whether it could be measured: a benchmark that crashes must not end the others."""
    try:
        module, _, drill = name.partition(" ")
        measure = drills.measure(drill) if drill else importlib.import_module(f"benchmarks.{module}").measure
        found: dict[str, Any] = measure(quick)
    except Exception as fault:
        traceback.print_exc()
        said = str(fault).strip().splitlines()
        return result([Row(name, f"not measured: {type(fault).__name__}: {said[0] if said else ''}", met=False)]), False
    return found, True


def _rows(target: str, sections: list[tuple[str, dict[str, Any]]]) -> list[dict[str, str]]:
    """The measurements as rows of the CSV file; the first row of a benchmark has the notes."""
    rows = []
    for name, found in sections:
        notes = "; ".join([_machine(), *found["notes"]])
        for row in found["rows"]:
            values = [PLACES[target], time.strftime("%Y-%m-%d"), *cells(row), name, notes]
            rows.append(dict(zip(COLUMNS, values, strict=True)))
            notes = ""
    return rows


def _machine() -> str:
    import psutil
    import torch

    from deploy.local.machine import machine

    memory = psutil.virtual_memory().total / 2**30
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=venv.HOME, text=True, capture_output=True, check=False
    ).stdout.strip()
    return (
        f"{machine().cores} cores ({platform.machine()}), {memory:.0f} GiB of memory, "
        f"Python {platform.python_version()}, torch {torch.__version__}, commit {commit or 'unknown'}"
    )


def _write(rows: list[dict[str, str]]) -> None:
    """Replace the older rows of the same benchmarks with these rows."""
    measured = {row["benchmark"] for row in rows}
    with FILE.open(newline="") as file:
        old = [row for row in csv.DictReader(file) if row["benchmark"] not in measured]
    order = list(PLACES.values())
    rows = sorted([*old, *rows], key=lambda row: order.index(row["place"]) if row["place"] in order else len(order))
    with FILE.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


if __name__ == "__main__":
    sys.exit(main())
