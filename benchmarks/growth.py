"""How preflight, deploy, status and following grow with the hosts: measured on 2 to 16, and a model up to 128 hosts.

    python -m benchmarks.growth [--quick]

The hosts are rack hosts that have the image. All of them and the control side share this machine's cores, so the
results are CPU seconds, not elapsed time: the command's own, and those of all hosts together.

The model is fitted to 2, 4 and 8 hosts and compared with the measurement on 16. Each count of CPU seconds is `a + b n`;
a command takes `c + CPU / cores` here. On separate hosts the last part is the command's own CPU, and one host's share.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import statistics
import subprocess
import time
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import psutil

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import FAB_THERE
from deploy.local.machine import machine
from lab.rack import Rack, forget

BASE, COPIES = "muster-trainer:cpu", "muster-growth"
SIZES, FITTED, FAR, MOST_OFF = (2, 4, 8, 16), (2, 4, 8), (32, 64, 128), 0.15
FOLLOWED_S = 10.0
# The script makes steps for a while, at a pace that all sizes can keep on two cores, and then waits: so the cost of
# reading its state does not include its own cost.
SCRIPT = """
import time
import torch
import torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(100, 10))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for step in range(30):
    model(torch.ones(8, 100)).sum().backward()
    optimizer.step()
    print(f"step at {time.time():.3f}", flush=True)
    time.sleep(1 - time.time() % 1)
print("idle", flush=True)
time.sleep(600)
"""
_STEP = re.compile(r"step at (\d+\.\d+)")


@dataclass(frozen=True)
class Cost:
    """The cost of a command: seconds, and CPU seconds of the command itself and of all hosts."""

    seconds: float
    own: float
    theirs: float = 0.0


class Field:
    """The running hosts of a rack, and the CPU seconds that they have used."""

    def __init__(self, rack: Rack) -> None:
        self.rack, self._counters = rack, racks.counters(rack)

    def theirs(self, hosts: int) -> float:
        """CPU seconds used so far by the first `hosts` hosts, and by everything that runs in them."""
        return sum(map(racks.used, self._counters[:hosts]))

    def start(self, words: Sequence[str], hosts: int, folder: Path) -> subprocess.Popen[str]:
        """Start a command on the first `hosts` hosts."""
        line = [*FAB_THERE, words[0], "--hosts", ",".join(self.rack.hosts[:hosts]), *words[1:]]
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        return subprocess.Popen(line, cwd=folder, text=True, **out)

    def cost(self, words: Sequence[str], hosts: int, folder: Path) -> Cost:
        """The cost of a whole command. Raises RuntimeError if it fails."""
        before, began = self.theirs(hosts), time.monotonic()
        process = self.start(words, hosts, folder)
        text = process.stdout.read() if process.stdout else ""
        _, status, used = os.wait4(process.pid, 0)
        seconds, own = time.monotonic() - began, used.ru_utime + used.ru_stime
        process.returncode = os.waitstatus_to_exitcode(status)
        if process.returncode:
            raise RuntimeError(f"{' '.join(words)} on {hosts} hosts: code {process.returncode}\n{text}")
        return Cost(seconds, own, self.theirs(hosts) - before)


def measure(quick: bool) -> dict[str, Any]:
    """CPU and seconds of each command on few hosts, and the model for many."""
    load = os.getloadavg()[0]
    with racks.rack(max(SIZES), "classic") as rack:
        try:
            rack.load(BASE, COPIES)
            found = _measured(Field(rack), 1 if quick else 2)
        finally:
            forget(COPIES)
    cores = machine().cores
    return result(rows_of(found, cores), [f"hosts of a rack, all on {cores} cores; load before: {load:.1f}"])


def of_tree(pid: int) -> float:
    """CPU seconds of a process and of all processes that it has started, including ended ones."""
    used = 0.0
    for process in (top := psutil.Process(pid), *top.children(recursive=True)):
        try:
            used += sum(process.cpu_times()[:4])
        except psutil.Error:
            continue
    return used


def one_run(field: Field, hosts: int, folder: Path) -> dict[str, Cost]:
    """Make a run, and measure: the deploy until its nodes run, following for a while, and its status."""
    run = f"growth-{uuid.uuid4().hex[:8]}"
    try:
        words = ["deploy", "--image", BASE, "--script", "train.py", "--run", run, "--detach"]
        return {
            "deploy": field.cost(words, hosts, folder),
            "follow": followed(field, run, hosts, folder),
            "status": field.cost(["status", "--run", run], hosts, folder),
        }
    finally:
        for task in ("stop", "down"):
            field.start([task, "--run", run], hosts, folder).communicate(timeout=300)
        shutil.rmtree(folder / "runs", ignore_errors=True)


def followed(field: Field, run: str, hosts: int, folder: Path) -> Cost:
    """The cost of following after the first step, for each second of it.

    `seconds`: the delay from a line of rank 0 to the terminal. Before the first step the hosts load torch on the cores
    that all of them share here, so that part would show nothing.
    """
    process = field.start(["attach", "--run", run], hosts, folder)
    late, cost, began, before = list[float](), None, 0.0, 0.0
    for line in iter(process.stdout.readline, "") if process.stdout else ():
        now, step, is_idle = time.time(), _STEP.search(line), line.strip() == "idle"
        if step and not began:
            began, before = now, of_tree(process.pid)
        elif step and now - began < FOLLOWED_S:
            late.append(now - float(step[1]))
        elif (step or is_idle) and not cost:
            cost = Cost(statistics.median(late), (of_tree(process.pid) - before) / (now - began))
        if is_idle:  # the state of the run is read next, while the run does not work
            break
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=120)
    if not cost:
        raise RuntimeError(f"{hosts} hosts: no step was seen")
    return cost


Found = dict[str, dict[int, Cost]]


def _measured(field: Field, repetitions: int) -> Found:
    """For each command and number of hosts, the cheapest repetition, because others may use this machine, too."""
    found = dict[str, dict[int, list[Cost]]]()
    with nodes.scratch() as folder:
        (folder / "train.py").write_text(SCRIPT)
        one_run(field, max(SIZES), folder)  # each host has then seen the image, and made its folders
        for _ in range(repetitions):
            for hosts in SIZES:
                costs = {"preflight": field.cost(["preflight"], hosts, folder), **one_run(field, hosts, folder)}
                for command, cost in costs.items():
                    say(f"{hosts} hosts, {command}: {cost}")
                    found.setdefault(command, {}).setdefault(hosts, []).append(cost)
    return {command: {n: min(each, key=lambda cost: cost.seconds) for n, each in sizes.items()}
            for command, sizes in found.items()}  # fmt: skip


@dataclass(frozen=True)
class Line:
    """The straight line `a + b n`."""

    base: float
    each: float

    def at(self, hosts: int) -> float:
        """The value for this number of hosts."""
        return self.base + self.each * hosts


def line_of(values: Mapping[int, float]) -> Line:
    """The line through the measurements on few hosts, each weighted by the inverse of its value."""
    sizes = numpy.array(FITTED, float)
    weights = 1 / numpy.array([values[n] for n in FITTED])
    each, base = numpy.polyfit(sizes, [values[n] for n in FITTED], 1, w=weights)
    return Line(float(base), float(each))


class Model:
    """The cost of a command on any number of hosts, from its costs on few."""

    def __init__(self, costs: Mapping[int, Cost], cores: int) -> None:
        self.own = line_of({n: cost.own for n, cost in costs.items()})
        self.theirs = line_of({n: cost.theirs for n, cost in costs.items()})
        self._cores = cores
        # Waiting for a handshake or the next look, during which no core is busy; the median of the few hosts.
        self.waits = statistics.median(costs[n].seconds - self._busy(n) for n in FITTED)

    def _busy(self, hosts: int) -> float:
        return (self.own.at(hosts) + self.theirs.at(hosts)) / self._cores

    def apart(self, hosts: int) -> float:
        """Seconds if each host has its own cores: the command's own work, and one host's work."""
        return max(self.waits, 0.0) + self.own.at(hosts) + self.theirs.at(hosts) / hosts


def rows_of(found: Found, cores: int) -> list[Row]:
    """The measurements and the model: its error on a size that was not fitted, and its prediction for more hosts."""
    rows, sizes, far = list[Row](), ", ".join(map(str, SIZES)), ", ".join(map(str, FAR))
    for command in ("preflight", "deploy", "status"):
        costs = found[command]
        model = Model(costs, cores)
        what = f"{command}{' until its nodes run' * (command == 'deploy')}, {sizes} hosts: CPU of the command"
        rows += [
            _row(what, "s", {n: cost.own for n, cost in costs.items()}, model.own.at),
            _row("... CPU of all hosts", "s", {n: cost.theirs for n, cost in costs.items()}, model.theirs.at),
            Row(f"... {far} hosts with cores of their own: seconds", f"{_shown(map(model.apart, FAR))} s (model)"),
        ]
    shares = {n: 100 * cost.own for n, cost in found["follow"].items()}
    line = line_of(shares)
    rows.append(_row(f"following, {sizes} hosts: of a core", "%", shares, line.at))
    rows.append(Row(f"... {far} hosts", f"{_shown(map(line.at, FAR))} % (model)"))
    late = _shown(cost.seconds for cost in found["follow"].values())
    rows.append(Row("... from a line of rank 0 to the terminal", f"{late} s"))
    return rows


def _row(what: str, unit: str, values: Mapping[int, float], model: Callable[[int], float]) -> Row:
    most = max(SIZES)
    ratio = model(most) / values[most]
    return Row(what, f"{_shown(values[n] for n in SIZES)} {unit}", f"model, {most}: {model(most):.3g} {unit}",
               f"{ratio:.2f}x", f"{100 * MOST_OFF:.0f} %", abs(ratio - 1) <= MOST_OFF)  # fmt: skip


def _shown(values: Iterable[float]) -> str:
    return ", ".join(f"{value:.3g}" for value in values)


if __name__ == "__main__":
    alone(measure, __doc__)
