"""Run the checks one after another, each in its own process and within its time limit, and end what they leave."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from muster.files import read_lines

from . import processes
from .checks import module
from .child import FINDINGS, MACHINE
from .finding import NOT_MET, Done, Finding, judge, untried
from .nodes import HOME

_LOOK_S = 120.0
_POLL_S = 0.1
# A check with less time does not start. Each later check keeps at least this much.
_LEAST_S, _RESERVED_S = 10.0, 5.0


@dataclass
class Schedule:
    """The remaining checks. `folder` receives their files, `seconds` is the time for all checks together."""

    folder: Path
    seconds: float
    say: Callable[[str], None]
    interrupted: bool = False

    def __post_init__(self) -> None:
        self._end = time.monotonic() + self.seconds
        # A killed torchrun leaves its temporary folder behind: here it is removed with the schedule's. The path is
        # short because loader workers create sockets in it, whose names may have at most 107 characters.
        self._temporary = self.folder / "tmp"
        self._temporary.mkdir()

    def read_facts(self) -> dict[str, Any]:
        """The machine's facts. Raises subprocess.SubprocessError if this Python's torch cannot even be loaded."""
        command = [sys.executable, "-m", f"{__package__}.machine_facts"]
        looks = subprocess.Popen(command, cwd=HOME, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        try:
            output, words = looks.communicate(timeout=_LOOK_S)
        except subprocess.TimeoutExpired:
            looks.kill()  # this does not wait for its end: a hanging driver keeps it alive
            raise
        if looks.returncode:
            raise subprocess.CalledProcessError(looks.returncode, command, output, words)
        machine: dict[str, Any] = json.loads(output.splitlines()[-1])
        (self.folder / MACHINE).write_text(json.dumps(machine))
        return machine

    def run(self, names: Sequence[str]) -> list[Done]:
        """Run these checks in order. Ctrl-C ends the current one; the findings so far are returned."""
        done: list[Done] = []
        for number, name in enumerate(names, 1):
            check = module(name)
            left = self._end - time.monotonic() - _RESERVED_S * (len(names) - number)
            if left < min(_LEAST_S, check.LIMIT_S):
                late = untried(check.TITLE, f"the {self.seconds:.0f} s for all checks were used up")
                done.append(Done(name, check.TITLE, 0.0, (late,)))
                continue
            seconds = min(check.LIMIT_S, left)
            self.say(f"[{number}/{len(names)}] {name}: {check.TITLE} (at most {seconds:.0f} s)")
            done.append(self._check(name, check.TITLE, seconds))
            for finding in done[-1].findings:
                self.say(f"      {finding.state:<9} {finding.what}: {finding.measured}")
            if self.interrupted:
                break
        return done

    def _check(self, name: str, title: str, seconds: float) -> Done:
        folder = self.folder / name
        folder.mkdir()
        began = time.monotonic()
        child = subprocess.Popen(
            [sys.executable, "-m", f"{__package__}.child", name, str(folder)],
            cwd=HOME,
            env={**os.environ, processes.LABEL: str(folder), "TMPDIR": str(self._temporary)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            start_new_session=True,  # so that only this process gets a Ctrl-C from the terminal
        )
        ended, left = False, 0
        try:
            ended = self._follow(child, began + seconds)
            left = len(processes.labelled(processes.LABEL, str(folder))) if ended else 0
        except KeyboardInterrupt:
            self.interrupted = True
        finally:
            survivors = processes.end(processes.LABEL, str(folder))
            child.wait()
            assert child.stdout
            child.stdout.close()
        findings = [Finding(**line) for line in read_lines(folder / FINDINGS)]
        if self.interrupted:
            findings.append(untried(f"the rest of {name}", "it was interrupted"))
        elif not ended:
            text = f"killed after its limit of {seconds:.0f} s"
            findings.append(Finding(f"{name} to its end", NOT_MET, text, words=_logs(folder)))
        elif child.returncode:
            findings.append(judge(f"{name} to its end", False, f"its process ended with code {child.returncode}"))
        if left or survivors:
            text = f"{left} processes were left behind, {survivors} cannot be killed"
            findings.append(judge(f"nothing is left of {name}", False, text, "no process"))
        return Done(name, title, round(time.monotonic() - began, 1), tuple(findings))

    def _follow(self, child: subprocess.Popen[bytes], end: float) -> bool:
        """Pass on the check's output; returns whether the check ended by itself in time."""
        assert child.stdout
        os.set_blocking(child.stdout.fileno(), False)
        rest = b""
        while time.monotonic() < end:
            over = child.poll() is not None
            rest += child.stdout.read() or b""
            *whole, rest = rest.split(b"\n")
            for line in whole:
                self.say(f"      .. {line.decode(errors='replace')}")
            if over:
                return True
            time.sleep(_POLL_S)
        return False


def _logs(folder: Path) -> str:
    """The end of the node logs of a check's runs."""
    logs = sorted(folder.glob("*/logs/*.log"))
    return "\n".join(f"{log.relative_to(folder)}: {log.read_text(errors='replace')[-1000:]}" for log in logs)
