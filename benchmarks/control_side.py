"""The control side alone: what `pip install .` puts on a laptop, and how soon it answers.

    python -m benchmarks.control_side [--quick]

A fresh virtual environment, so that only what Muster needs is counted: blocks on the disk, beyond Python and pip.
`muster --list` runs from it, `fab --list` from the environment of the benchmarks, in the checkout.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME

MOST_BYTES, MOST_SECONDS, MOST_TAB_S = 68e6, 1.0, 0.3
_TAB = 'COMP_WORDS=(muster status --hosts ""); COMP_CWORD=3; _muster_complete; [ "${#COMPREPLY[@]}" -ge 500 ]'
_PARTS = ("deploy", "trainer", "muster", "requirements", "setup.py", "pyproject.toml", "README.md", "LICENSE")


def measure(quick: bool) -> dict[str, Any]:
    """Bytes and seconds; each command's first run, which writes no bytecode any more, is counted as well."""
    repetitions = 3 if quick else 10
    with nodes.scratch() as scratch:
        home = scratch / "venv"
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
        before = _size(home)
        _install(home, scratch / "copy")
        grown = _size(home) - before
        say(f"control_side: {grown / 1e6:.1f} MB")
        muster = [_list(home / "bin" / "muster", scratch) for _ in range(repetitions)]
        tab = [_tab(home / "bin" / "muster", scratch) for _ in range(repetitions)]
    fab = [_list(Path(sys.executable).with_name("fab"), HOME) for _ in range(repetitions)]
    rows = [Row("control side, installed", f"{grown / 1e6:.1f} MB", target="<= 68 MB", met=grown <= MOST_BYTES)]
    for name, seconds in (("muster", muster), ("fab", fab)):
        met = max(seconds) <= MOST_SECONDS
        rows.append(Row(f"{name} --list", f"{spread(seconds)} s", target=f"<= {MOST_SECONDS} s each", met=met))
    met = max(tab) <= MOST_TAB_S
    rows.append(Row("the Tab key among 500 hosts, bash", f"{spread(tab)} s", target=f"<= {MOST_TAB_S} s each", met=met))
    return result(
        rows, [f"{repetitions} repetitions, median (least-most); bytes of a fresh environment, without torch"]
    )


def _install(home: Path, copy: Path) -> None:
    """From a copy: what setuptools leaves behind is not for the checkout."""
    copy.mkdir()
    for part in _PARTS:
        ignored = shutil.ignore_patterns("__pycache__", "*.whl")
        if (HOME / part).is_dir():
            shutil.copytree(HOME / part, copy / part, ignore=ignored)
        else:
            shutil.copy(HOME / part, copy)
    subprocess.run([home / "bin" / "pip", "install", "--quiet", "--disable-pip-version-check", copy], check=True)


def _size(folder: Path) -> int:
    return sum(path.lstat().st_blocks * 512 for path in folder.rglob("*"))


def _tab(command: Path, folder: Path) -> float:
    """Seconds in which a new bash completes the hosts of a cluster.toml and of SSH's settings."""
    (folder / "cluster.toml").write_text("".join(f'[[hosts]]\nname = "gpu-{number}"\n' for number in range(250)))
    (folder / "settings").write_text("".join(f"Host lab-{number}\n" for number in range(250)))
    text = subprocess.run([command, "completion", "--shell", "bash"], capture_output=True, text=True, check=True).stdout
    (folder / "completion").write_text(text)
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(folder / "settings")}
    began = time.monotonic()
    subprocess.run(["bash", "-c", f". ./completion; {_TAB}"], cwd=folder, env=environment, check=True)
    return time.monotonic() - began


def _list(command: Path, folder: Path) -> float:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    began = time.monotonic()
    done = subprocess.run([command, "--list"], cwd=folder, env=environment, capture_output=True, text=True, check=True)
    seconds = time.monotonic() - began
    if "deploy" not in done.stdout:
        raise RuntimeError(f"{command} --list does not list deploy")
    return seconds


if __name__ == "__main__":
    alone(measure, __doc__)
