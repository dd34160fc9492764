"""`pip install .` as a user does it: a wheel built from a copy of the code, in a new environment."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]


def run(*command, cwd=None, **more):
    """Run a command without this shell's variables for Python and Muster; returns the completed process."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MUSTER_", "VIRTUAL"))
    }
    return subprocess.run(command, cwd=cwd, env={**variables, **more}, capture_output=True, text=True, timeout=300)


def wheel(folder):
    """Build the wheel in `folder` from a copy, so that setuptools leaves nothing behind in the checkout."""
    copy = folder / "copy"
    for name in ("deploy", "trainer", "muster", "requirements", "docs/how-to", "docs/tutorial"):
        shutil.copytree(HOME / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(HOME / name, copy)
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy))
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def install(made, home):
    """Install into a new environment at `home`; returns its `muster`, and its size in bytes beyond Python and pip."""
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    before = _size(home)
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(made))
    assert done.returncode == 0, done.stderr
    return home / "bin/muster", _size(home) - before


def install_beside(made, home):
    """Install into a new environment at `home` that uses this one's libraries: torch is not installed again."""
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(made))
    assert done.returncode == 0, done.stderr
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin/muster"


def beside(home, *packages):
    """The programs of a new environment with these packages, which uses torch and the other libraries of this one.

    Skips the test if pip cannot install the packages.
    """
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    libraries = next(home.glob("lib/python*/site-packages"))
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *packages)
    if done.returncode:
        pytest.skip(f"pip cannot install {', '.join(packages)}: {done.stderr.strip().splitlines()[-1][:200]}")
    return home / "bin"


def _size(folder):
    """The bytes of the files; the size in disk blocks would differ between file systems."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
