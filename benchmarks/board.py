"""How late the board is, and what it costs: a run on three hosts, watched in a browser for a minute.

    python -m benchmarks.board [--quick]

Rank 0 makes a step, prints a line and records the time, once a second. In Debian's Chromium an observer records when
the line and the step's number appear on the page. Hosts, board and browser have the same clock: they share this
machine. The board's share of a core is its own process's CPU time, its SSH connections included, while the page is
watched.
"""

from __future__ import annotations

import json
import re
import signal
import statistics
import subprocess
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.growth import of_tree
from benchmarks.venv import HOME

BASE, HOSTS, MOST_S, MOST_SHARE = "muster-trainer:cpu", 3, 1.0, 0.02
MUSTER = HOME / ".venv" / "bin" / "muster"
SCRIPT = """
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
step = 0
while True:
    loss = (model(torch.ones(4, 8)) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if dist.get_rank() == 0:
        print(f"step {step} at {time.time():.3f} loss {loss.item():.4f}", flush=True)
    time.sleep(1.07)  # not in step with a page that looks each second
"""
# What the page shows, and since when: the newest line of rank 0's log, and the number of steps.
WATCH = """() => {
  window.seen = {line: {}, step: {}};
  const note = (kind, text) => { if (text && !(text in seen[kind])) seen[kind][text] = Date.now() / 1000; };
  const look = () => {
    const lines = (document.querySelector("#logs pre")?.textContent || "").trimEnd().split("\\n");
    note("line", (lines.at(-1).match(/step (\\d+) at/) || [])[1]);
    for (const each of document.querySelectorAll(".figures div"))
      if (each.querySelector("dt").textContent.includes("steps"))
        note("step", each.querySelector("dd").textContent.replaceAll(",", ""));
  };
  new MutationObserver(look).observe(document.body, {childList: true, subtree: true, characterData: true});
}"""
BROWSE = """
import json, sys
from tests.browser import chromium
url, run, seconds, watch = sys.argv[1:]
with chromium() as browser:
    page = browser.new_page()
    page.set_default_timeout(120_000)
    page.goto(url)
    page.get_by_role("link", name=run).click()
    page.locator(".verdict.running").wait_for()
    page.get_by_label("log", exact=True).select_option("logs/rack-1.log")
    page.locator("#logs pre").get_by_text("step").first.wait_for()
    page.evaluate(watch)
    print("watching", flush=True)
    page.wait_for_timeout(float(seconds) * 1000)
    print(json.dumps(page.evaluate("() => seen")), flush=True)
"""
_STEP = re.compile(r"step (\d+) at (\d+\.\d+)")


def measure(quick: bool) -> dict[str, Any]:
    """Seconds from a print and from a step until the page shows them, and the board's share of a core."""
    with nodes.scratch() as scratch, racks.rack(HOSTS, "classic") as rack:
        project, watching = scratch / f"board-{uuid.uuid4().hex[:6]}", scratch / "watching"
        for folder in (project, watching):
            folder.mkdir()
        (project / "train.py").write_text(SCRIPT)
        hosts = ("--hosts", ",".join(rack.hosts))
        _muster(
            "deploy", *hosts, "--image", BASE, "--run", project.name, "--detach", "--folder", project, "--", "train.py"
        )
        try:
            lines, steps, share = _watch(project.name, watching, hosts, 20 if quick else 60)
        finally:
            _muster("stop", *hosts, "--run", project.name)
    rows = [
        Row(
            "print to the browser, s", spread(lines), target=f"<= {MOST_S:.0f}", met=statistics.median(lines) <= MOST_S
        ),
        Row("step to the chart, s", spread(steps), target=f"<= {MOST_S:.0f}", met=statistics.median(steps) <= MOST_S),
        Row("the board's share of a core", f"{share:.1%}", target=f"<= {MOST_SHARE:.0%}", met=share <= MOST_SHARE),
    ]
    return result(rows, [f"{HOSTS} rack hosts, a step a second, the page of the run and the first host's log open"])


def _watch(run: str, folder: Path, hosts: tuple[str, str], seconds: float) -> tuple[list[float], list[float], float]:
    line = [str(MUSTER), "board", "--no-open", *hosts]
    with subprocess.Popen(line, cwd=folder, stdout=subprocess.PIPE, text=True) as started:
        try:
            url = (started.stdout or sys.stdin).readline().strip()
            # The browser library is installed only for the tests.
            browse = [HOME / ".venv/bin/python", "-c", BROWSE, url, run, str(seconds), WATCH]
            with subprocess.Popen(browse, cwd=HOME, stdout=subprocess.PIPE, text=True) as browser:
                lines = browser.stdout or sys.stdin
                lines.readline()  # the page is being watched
                began, used = time.monotonic(), of_tree(started.pid)
                say(f"watches for {seconds:.0f} s")
                seen = json.loads(lines.readline())
                share = (of_tree(started.pid) - used) / (time.monotonic() - began)
        finally:
            started.send_signal(signal.SIGINT)
    log = folder / f"runs/{run}/logs/rack-1.log"
    made = {int(step): float(at) for step, at in _STEP.findall(log.read_text())}
    return _late(made, seen["line"]), _late(made, seen["step"]), share


def _late(made: dict[int, float], seen: dict[str, float]) -> list[float]:
    """Seconds from each step until the page shows that step or a later one."""
    shown = sorted((at, int(number)) for number, at in seen.items())[1:]
    first, last = shown[0][1], max(number for _, number in shown)
    return [min(at for at, number in shown if number >= step) - made[step] for step in range(first, last + 1)]


def _muster(*words: object) -> None:
    subprocess.run([str(MUSTER), *map(str, words)], cwd=HOME, check=True, capture_output=True)


if __name__ == "__main__":
    alone(measure, __doc__)
