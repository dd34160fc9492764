"""The benchmarks' Python environment: `.venv-bench`, which contains Muster's requirements and its rivals'."""

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
# The same command for use in another folder, whose settings then apply.
FAB_THERE = [str(FAB), "--search-root", str(HOME)]
_PYTHON = VENV / "bin" / "python"
# The same name as the Makefile's stamp, so that `make up VENV=.venv-bench` has nothing to install.
_STAMP = VENV / ".ready"
_REQUIREMENTS = HOME / "requirements"
_LOCKS = [_REQUIREMENTS / f"{name}.txt" for name in ("control", "trainer", "torch", "bench")]


def enter() -> None:
    """Continue in `.venv-bench`, created or updated if necessary, by restarting this command in it."""
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
    # One after the other: torch has no hash (requirements/lock.sh), and packages that need torch use the installed one.
    for lock in _LOCKS:
        line: list[str | Path] = [_PYTHON, "-m", "pip", "install", "--quiet", "-r", lock]
        if lock.name == "torch.txt":
            line = [_REQUIREMENTS / "torch.sh", _PYTHON]
        subprocess.run(line, check=True)
    _STAMP.touch()
