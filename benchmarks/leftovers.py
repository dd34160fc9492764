"""Ctrl-C, or kill -9, of `fab deploy`, and of the `fab stop` that ends its run, in each phase: what is left on hosts?

    python -m benchmarks.leftovers [--quick]

Two hosts, one with each image store; in each phase (benchmarks/phases.py) the control side is hit once. After a Ctrl-C
the hosts are looked at as they are; after a kill -9 `fab down --hosts` runs first, while what was under way still is.
Counted are containers, networks, files (run folders of runs that started and the log of deeds apart), processes.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say
from benchmarks.phases import PHASES, Held, Phase, left_on, settled
from benchmarks.venv import HOME

BASE = "muster-trainer:cpu"
FAB = HOME / ".venv" / "bin" / "fab"
CODE_BYTES = 12_000_000  # more than what may be on its way unread: a `docker load` that waits holds up its sender
SIGNALS = {"Ctrl-C": signal.SIGINT, "kill -9": signal.SIGKILL}


@dataclass(frozen=True)
class Trial:
    """What one hit left: `left` lines, fab's exit code, and what it said."""

    left: list[str]
    code: int
    output: str


def measure(quick: bool) -> dict[str, Any]:
    """Leftovers over all phases, for each way to be hit."""
    phases = PHASES[::3] if quick else PHASES
    rows, notes = [], [f"{len(phases)} phases: {', '.join(phase.name for phase in phases)}; 2 hosts"]
    with nodes.scratch() as scratch, racks.rack(2, "mixed") as rack:
        push(rack.containers)
        for word, number in SIGNALS.items():
            count = 0
            for phase in phases:
                trial = hit(rack.names, rack.containers, phase, number, scratch)
                say(f"{word} while {phase.name}: {len(trial.left)} left, exit code {trial.code}")
                notes += [f"{word} while {phase.name}: {line}" for line in trial.left]
                count += len(trial.left)
            after = " and fab down" if number == signal.SIGKILL else ""
            rows.append(Row(f"left on the hosts after {word}{after}", str(count), target="0", met=not count))
    return result(rows, notes)


def push(containers: Mapping[str, str]) -> None:
    """Bring the base onto the hosts, under its own name too: preflight then probes from within it."""
    _fab("push", tuple(containers), "--image", BASE)
    for container in containers.values():
        name = ["docker", "exec", container, "docker", "tag", "muster-muster-trainer-cpu:latest", BASE]
        subprocess.run(name, check=True)


def hit(
    names: Sequence[str], containers: Mapping[str, str], phase: Phase, number: signal.Signals, scratch: Path
) -> Trial:
    """Deploy, hit the control side in a phase, and count what stays. Raises AssertionError when that never came."""
    run = f"left-{uuid.uuid4().hex[:8]}"
    run_dir, folder = HOME / "runs" / run, scratch / "code"
    folder.mkdir(exist_ok=True)
    (folder / "code.bin").write_bytes(random.randbytes(CODE_BYTES))

    # Only a Ctrl-C takes back what has started: after a kill -9 the folder of a node that ran is the run's.
    never = () if phase.runs or (phase.some and number == signal.SIGKILL) else (run,)

    def look() -> list[str]:
        return [f"{host} {line}" for host in names for line in left_on(containers[host], never)]

    before, ended = look(), False
    words = ("--image", BASE, "--folder", str(folder), "--run", run, "--args=--steps 100000 --checkpoint-every 10")
    try:
        with Held(dict(containers), phase) as held, (scratch / "said").open("w+") as file:
            out = {"cwd": HOME, "stdout": file, "stderr": subprocess.STDOUT}
            commands = [subprocess.Popen(_line("deploy", names, *words), **out)]
            try:
                try:
                    if phase.runs:
                        _until(lambda: b'"step"' in _read(run_dir / "ranks" / "rank-0.jsonl"), "steps", commands[0])
                    if phase.asked:
                        commands.append(subprocess.Popen(_line("stop", names, "--run", run), **out))
                    if not phase.runs or phase.held:
                        _until(held.reached, phase.name, commands[-1])
                except AssertionError as why:
                    raise AssertionError(f"{why}; fab said:\n{Path(file.name).read_text()}") from None
                code = _end(commands[-1], number, held)
                if not phase.held:
                    held.let_go()
                if number == signal.SIGKILL:
                    _fab("down", names)
                elif phase.runs and not phase.asked:  # the run continues without us: this is how it ends
                    _fab("stop", names, "--run", run)
            finally:
                for command in commands:
                    command.kill()
            held.let_go()
            left = settled(look, before)
            ended = not left
            file.seek(0)
            return Trial(left, code, file.read())
    finally:
        if not ended:
            _fab("down", names, "--run", run)
        for host in names:
            remove = ["docker", "exec", containers[host], "rm", "-rf", f"/home/muster/.muster/runs/{run}"]
            subprocess.run(remove, check=True)
        shutil.rmtree(run_dir, ignore_errors=True)


def _end(fab: subprocess.Popen[bytes], number: signal.Signals, held: Held) -> int:
    """fab's exit code. What waits on the hosts goes on only once fab has ended, or waits for it."""
    fab.send_signal(number)
    with suppress(subprocess.TimeoutExpired):
        return fab.wait(3)
    held.let_go()
    return fab.wait(90)


def _until(condition: Callable[[], bool], what: str, fab: subprocess.Popen[bytes]) -> None:
    end = time.monotonic() + 120
    while not condition():
        assert fab.poll() is None, f"fab ended with {fab.returncode} before: {what}"
        assert time.monotonic() < end, f"waited for: {what}, which did not come"
        time.sleep(0.1)


def _read(path: Path) -> bytes:
    return path.read_bytes() if path.exists() else b""


def _line(task: str, names: Sequence[str], *words: str) -> list[str]:
    return [str(FAB), task, "--hosts", ",".join(names), *words]


def _fab(task: str, names: Sequence[str], *words: str) -> None:
    done = subprocess.run(_line(task, names, *words), cwd=HOME, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, f"fab {task}: {done.stderr}"


if __name__ == "__main__":
    alone(measure, __doc__)
