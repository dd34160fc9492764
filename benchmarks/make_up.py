"""`make up` as a user types it, and what came of it; its run folder is removed afterwards."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.venv import HOME, VENV

LATEST = HOME / "runs" / "latest"


@dataclass(frozen=True)
class Made:
    """A run that ended well: `seconds` from the command to its end, `first_step_s` from it to the end of step 1."""

    seconds: float
    first_step_s: float
    accuracy: float


def make_up(backend: str, arguments: str) -> Made:
    """Run `make up` to its end. Raises RuntimeError with what it said when that is not a good one."""
    command = ["make", "up", f"VENV={VENV.name}", f"BACKEND={backend}", f"ARGS={arguments}", "JSON=1"]
    latest = LATEST.readlink() if LATEST.is_symlink() else None
    began = time.time()
    process = subprocess.Popen(
        command, cwd=HOME, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True
    )
    output = ""
    try:
        output, _ = process.communicate()
        seconds = time.time() - began
    finally:
        if process.poll() is None:  # we were interrupted: it shall end in good order too
            os.killpg(process.pid, signal.SIGTERM)
            output, _ = process.communicate()
        events = _parse(output)
        outcome = next((event for event in events if event["kind"] == "result"), {})
        if outcome:
            _forget(HOME / outcome["folder"], latest)
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)}: exit code {process.returncode}\n{output[-3000:]}")
    first_step = min(event["t"] for event in events if event["kind"] == "step")
    return Made(seconds, first_step - began, outcome["accuracy"])


def _parse(output: str) -> list[dict[str, Any]]:
    events = []
    for line in output.splitlines():
        with suppress(ValueError):
            event = json.loads(line)
            if isinstance(event, dict) and "kind" in event:
                events.append(event)
    return events


def _forget(folder: Path, latest: Path | None) -> None:
    """Remove the run, and let `latest` point to where it did before."""
    shutil.rmtree(folder, ignore_errors=True)
    if LATEST.is_symlink() and LATEST.readlink().name == folder.name:
        LATEST.unlink()
        if latest is not None:
            LATEST.symlink_to(latest)
