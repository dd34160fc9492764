"""The Python environment of the benchmarks: `.venv-bench`, which holds Muster's requirements and its rivals'."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
VENV = HOME / ".venv-bench"
# The command of the checkout, as a user has it.
FAB = HOME / ".venv" / "bin" / "fab"
# The same in another folder, whose settings count.
FAB_THERE = [str(FAB), "--search-root", str(HOME)]
_PYTHON = VENV / "bin" / "python"
# Named as the Makefile names its own stamp, so that `make up VENV=.venv-bench` finds nothing to install.
_STAMP = VENV / ".ready"
_REQUIREMENTS = HOME / "requirements"
_LOCKS = [_REQUIREMENTS / f"{name}.txt" for name in ("control", "trainer", "torch", "bench")]


def enter() -> None:
    """Go on in `.venv-bench`, made or brought up to date if need be, by starting this very command again in it."""
    if Path(sys.prefix).resolve() == VENV.resolve():
        return
    if not _up_to_date():
        _make()
    os.execv(_PYTHON, [str(_PYTHON), *sys.orig_argv[1:]])


def _up_to_date() -> bool:
    return _STAMP.exists() and all(_STAMP.stat().st_mtime >= lock.stat().st_mtime for lock in _LOCKS)


def _make() -> None:
    print(f"installing what is compared into {VENV.name} (a minute or two, once)", file=sys.stderr)
    if not _PYTHON.exists():
        venv.create(VENV, with_pip=True)
    # One after the other: torch has no hash (requirements/lock.sh), and what needs torch takes the one that is there.
    for lock in _LOCKS:
        line: list[str | Path] = [_PYTHON, "-m", "pip", "install", "--quiet", "-r", lock]
        if lock.name == "torch.txt":
            line = [_REQUIREMENTS / "torch.sh", _PYTHON]
        subprocess.run(line, check=True)
    _STAMP.touch()
