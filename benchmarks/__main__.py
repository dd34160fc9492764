"""`python -m benchmarks [hosts] [--quick]`, as `make bench` and its like: measure, write docs/benchmarks.md.

Without a word the figures of this machine; with `hosts` those of real hosts, which the rack stands for.
"""

from __future__ import annotations

import argparse
import importlib
import platform
import subprocess
import sys
import time
import traceback
from typing import Any

from benchmarks import drills, venv
from benchmarks.figure import HEAD, Row, cells, result, say, stop_like_ctrl_c, table

FIGURES = {
    "bench": (
        "data_parallel",
        "throughput",
        "startup",
        "drills all",
        "drills rank",
        "drills node",
        "drills cut",
        "drills disk",
        "exactly_once",
        "corruption",
        "checkpoint_stall",
        "watch_cost",
    ),
    "bench-hosts": ("push", "folder", "first_step", "packages", "drills host"),
}
PAGE = venv.HOME / "docs" / "benchmarks.md"
BEGIN, END = "<!-- begin: written by `make {}` -->", "<!-- end -->"


def main() -> int:
    """Measure, print, write; 1 when a benchmark broke (a figure that is not met is a finding, no fault)."""
    command = argparse.ArgumentParser(prog="benchmarks", description=__doc__)
    command.add_argument("what", nargs="?", choices=["hosts"], help="the figures of real hosts")
    command.add_argument("--quick", action="store_true", help="fewer repetitions; docs/benchmarks.md stays as it is")
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
        say("stopped: docs/benchmarks.md stays as it was")
        return 130
    minutes = (time.monotonic() - began) / 60
    if not options.quick:
        _write(target, _page(sections, minutes))
    say(f"{minutes:.1f} minutes" + ("" if options.quick else f", written to {PAGE.relative_to(venv.HOME)}"))
    return int(broken > 0)


def _measure(name: str, quick: bool) -> tuple[dict[str, Any], bool]:
    """The figure, and whether it could be measured at all: one that breaks must not take the others along."""
    try:
        module, _, drill = name.partition(" ")
        measure = drills.measure(drill) if drill else importlib.import_module(f"benchmarks.{module}").measure
        found: dict[str, Any] = measure(quick)
    except Exception as fault:
        traceback.print_exc()
        said = str(fault).strip().splitlines()
        return result([Row(name, f"not measured: {type(fault).__name__}: {said[0] if said else ''}", met=False)]), False
    return found, True


def _page(sections: list[tuple[str, dict[str, Any]]], minutes: float) -> str:
    """What stands between the markers."""
    lines = [f"{time.strftime('%Y-%m-%d')}, {_machine()}; {minutes:.0f} minutes in all.", ""]
    lines += ["| " + " | ".join([*HEAD, "command"]) + " |", "|---|---|---|---|---|---|---|"]
    for name, found in sections:
        rows = [[*cells(row), f"`python -m benchmarks.{name}`"] for row in found["rows"]]
        lines += ["| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |" for row in rows]
    lines += ["", "Notes:", ""]
    lines += [f"- {name}: {note}" for name, found in sections for note in found["notes"]]
    return "\n".join(lines)


def _machine() -> str:
    import psutil
    import torch

    from benchmarks.nodes import cores

    memory = psutil.virtual_memory().total / 2**30
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=venv.HOME, text=True, capture_output=True, check=False
    ).stdout.strip()
    return (
        f"{cores()} cores ({platform.machine()}), {memory:.0f} GiB of memory, "
        f"Python {platform.python_version()}, torch {torch.__version__}, commit {commit or 'unknown'}"
    )


def _write(target: str, page: str) -> None:
    begin = BEGIN.format(target)
    head, _, rest = PAGE.read_text().partition(begin)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{begin}\n{page}\n{END}{tail}")


if __name__ == "__main__":
    sys.exit(main())
