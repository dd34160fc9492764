"""The numbers that Muster shows of a run, beside what the script knows of its own training. Equal, or dated."""

from __future__ import annotations

import html
import json
import re
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

Fab = Callable[..., subprocess.CompletedProcess[str]]
# Where it is shown, what, its value as text, and of which step (0: of the last).
Number = tuple[str, str, str, int]
_VIEW = re.compile(r"^step (\d+)(?: \(.*?\))?   loss (\S+)(?: at step (\d+))?", re.MULTILINE)
_PAGE = re.compile(r"rank 0’s last(?: finite)? loss(?:, at step ([\d,]+) of ([\d,]+))? ([\d.,e+-]+)")
# Both sides measure the same steps, and a busy machine may take the processor away between two looks at the clock.
_PACE, _PACE_MS = 0.1, 50.0
# So late a step is reported, at most: four times a second, on a busy machine.
_REPORT_S = 1.5
# When a status was asked for and had come, and its row of a node.
Look = tuple[float, float, dict[str, Any]]


def faults(folder: Path, output: str, truth: dict[str, Any], fab: Fab) -> list[str]:
    """Each number that is neither the script's own nor dated; and each place that shows none."""
    if not truth:
        return []
    losses, times = truth["losses"], truth["times"]
    steps, pace = len(losses), (times[-1] - times[0]) / len(losses) * 1e3
    wrong = []
    for where, what, value, step in numbers(folder, output, fab):
        own = {
            "steps": steps,
            "slowest": truth.get("slowest", steps),
            "loss": losses[min(step or steps, steps) - 1],
            "pace": pace,
        }[what]
        if step > steps or not _equal(value, own, _PACE * own + _PACE_MS / steps if what == "pace" else 0.0):
            wrong.append(f"{where}: {what} {value}{f' at step {step}' if step else ''}, own {own:.6g} of {steps} steps")
    return wrong


def numbers(folder: Path, output: str, fab: Fab) -> Iterator[Number]:
    """All that is shown of the run in this folder; `output` is that of the command that followed it."""
    for step, loss, of in _VIEW.findall(output.rpartition("another program of the script trains")[2]):
        yield "view", "loss", loss, int(of or step)
    for step in re.findall(r"^done  at step (\d+)", output, re.MULTILINE):
        yield "last line", "slowest", step, 0
    for step in re.findall(r"^done  at step .*the furthest rank at (\d+)", output, re.MULTILINE):
        yield "last line", "steps", step, 0
    for line in _of_last_program(_lines(folder / "metrics.jsonl")):
        yield "events", "loss", repr(line["loss"]), line["step"]
    page = " ".join(html.unescape(re.sub(r"<[^>]*>", " ", (folder / "report.html").read_text())).split())
    for step, reached, loss in _PAGE.findall(page):
        yield "page", "loss", loss, int(step.replace(",", "") or 0)
        if reached:
            yield "page", "steps", reached, 0
    for steps in re.findall(r"\b steps?(?:, including repeated steps)? ([\d,]+) nodes?", page):
        yield "page", "steps", steps, 0
    compared = _answer(fab("compare", folder.name, folder.name, "--json"))
    rows = {row["name"]: row["values"][0] for row in compared["numbers"]}
    yield "compare", "steps", rows.get("steps", "none"), 0
    if "last loss" in rows:
        yield "compare", "loss", rows["last loss"], int(rows["step of that loss"].replace(",", ""))
    yield "compare", "pace", rows.get("step time", "none").removesuffix(" ms"), 0
    runs = [json.loads(line) for line in fab("runs", "--json").stdout.splitlines()]
    yield "runs --json", "steps", str(next(row["step"] for row in runs if row["id"] == folder.name)), 0


@contextmanager
def looking(looks: list[Look], status: Callable[[], subprocess.CompletedProcess[str]]) -> Iterator[None]:
    """Ask for the status again and again meanwhile."""
    over = threading.Event()

    def look() -> None:
        while not over.wait(3.0):
            began = time.time()
            rows = [json.loads(row) for row in status().stdout.splitlines()]
            looks.extend((began, time.time(), row) for row in rows if row.get("step"))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def status_faults(looks: list[Look], truth: dict[str, Any]) -> list[str]:
    """Looks whose step was not made when they say so, or whose pace is not that of the steps before."""
    times, wrong = truth["times"], []
    for began, ended, row in looks:
        step, age = row["step"], row["step_age_s"]
        if not began - age - _REPORT_S <= times[step] <= ended - age + _REPORT_S:
            wrong.append(f"status: step {step}, {age} s ago at {ended:.1f}; own {times[step]:.1f}")
        paces = [(after - before) * 1e3 for before, after in pairwise(times[: step + 1])]
        if not min(paces) - _PACE_MS <= row["step_ms"] <= max(paces) + _PACE_MS:
            wrong.append(f"status: {row['step_ms']} ms a step, own {min(paces):.0f} to {max(paces):.0f}")
    return wrong if looks else ["status: no look found a step"]


def _answer(done: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(done.stdout)
    return content


def _lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _of_last_program(lines: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A shell script may train twice, and knows the numbers of its last program."""
    begins = [at for at in range(1, len(lines)) if lines[at]["step"] <= lines[at - 1]["step"]]
    return lines[begins[-1] if begins else 0 :]


def _equal(shown: str, own: float, within: float) -> bool:
    """Whether it is the same to the last digit that is shown, or so near."""
    try:
        value = float(shown.replace(",", ""))
    except ValueError:
        return False
    if value == own or value != value:  # inf, nan
        return value == own or own != own
    digits, _, power = shown.lower().partition("e")
    unit = 10.0 ** (int(power or 0) - len(digits.partition(".")[2]))
    return abs(value - own) <= max(within, 0.51 * unit, 1e-6 * abs(own))
