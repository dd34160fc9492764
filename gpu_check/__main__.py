"""`python -m gpu_check`: try Muster on this machine's GPUs; without one, the same on the CPU.

docs/how-to/check-gpus.md says what it tries.
"""

from __future__ import annotations

import argparse
import json
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from .checks import ORDER, module
from .finding import Done, as_json, exit_code, summary, table
from .schedule import Schedule

SECONDS = 460.0
# The agent starts torchrun with `-P`, an option that Python has since 3.11.
_OLDEST_PYTHON = (3, 11)
_REFUSED, _INTERRUPTED = 2, 130


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the checks; returns the exit code.

    0 if no finding is NOT met, 1 if one is or the report could not be written, 2 if nothing could be tried.
    """
    options = _options(arguments)
    if why := _impossible():
        print(f"error: {why}", file=sys.stderr)
        return _REFUSED
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.default_int_handler)
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(prefix="gpu-check-")).resolve()
    schedule = Schedule(folder, options.seconds, _say)
    keep = False
    try:
        machine = schedule.read_facts()
        if machine["torch"] is None:
            print(f"error: {sys.executable} has no torch\nhint: PYTHON=/path/to/python make gpu-check", file=sys.stderr)
            return _REFUSED
        done = schedule.run(options.only or ORDER)
        written = _report(done, machine, time.monotonic() - began, options.json)
        code = exit_code(done) or int(not written)
        keep = bool(code)
        return _INTERRUPTED if schedule.interrupted else code
    except subprocess.SubprocessError as fault:
        words = (getattr(fault, "stderr", "") or "").strip().splitlines()[-1:]
        print(f"error: torch of {sys.executable} does not start: {' '.join(words) or fault}", file=sys.stderr)
        return _REFUSED
    except KeyboardInterrupt:
        return _INTERRUPTED
    finally:
        if keep:
            _say(f"the logs of all runs are in {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    command = argparse.ArgumentParser(prog="gpu_check", description=__doc__)
    command.add_argument("--only", type=_names, metavar="CHECK,...", help=f"of {', '.join(ORDER)}")
    command.add_argument(
        "--seconds", type=float, default=SECONDS, help="that all checks may take (default: %(default)s)"
    )
    command.add_argument("--json", type=Path, default=Path("gpu-check.json"), metavar="FILE", help="(%(default)s)")
    return command.parse_args(arguments)


def _names(text: str) -> list[str]:
    chosen = text.split(",")
    if unknown := [name for name in chosen if name not in ORDER]:
        raise argparse.ArgumentTypeError(f"no such check: {', '.join(unknown)}; there are {', '.join(ORDER)}")
    return [name for name in ORDER if name in chosen]


def _impossible() -> str:
    """Why this Python on this system cannot run any check; empty if it can."""
    if sys.platform != "linux":
        return f"gpu-check finds its processes in /proc, which {sys.platform} lacks"
    if sys.version_info < _OLDEST_PYTHON:
        return f"the agent needs Python 3.11 or newer, {sys.executable} is {sys.version.split()[0]}"
    return ""


def _report(done: Sequence[Done], machine: dict[str, object], seconds: float, path: Path) -> bool:
    """Print the findings, and write them to a file.

    Returns whether the file was written: if not, it may be an old one.
    """
    where, written = str(path), True
    try:
        path.write_text(json.dumps(as_json(done, machine, seconds), indent=1) + "\n")
    except OSError as fault:  # after minutes of checks the findings are printed anyway
        where, written = f"{where} cannot be written: {fault.strerror}", False
    print(table(done))
    missing = [name for name in ORDER if name not in {check.check for check in done}]
    if missing:
        print("left out: " + ", ".join(f"{name} ({module(name).TITLE})" for name in missing))
    print(f"{summary(done, seconds)}; {where}", flush=True)
    return written


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
