"""`pip install .` as a user does it: a wheel from a copy of the code, in an environment of its own."""

import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[1]


def run(*command, cwd=None, **more):
    """A command without what this shell's Python and Muster are told; gives what it did."""
    variables = {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "MUSTER_", "VIRTUAL"))
    }
    return subprocess.run(command, cwd=cwd, env={**variables, **more}, capture_output=True, text=True, timeout=300)


def wheel(folder):
    """The wheel, built in `folder` from a copy, so that what setuptools leaves behind is not in the checkout."""
    copy = folder / "copy"
    for name in ("deploy", "trainer", "muster", "requirements", "docs/how-to", "docs/tutorial"):
        shutil.copytree(HOME / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", "*.whl"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(HOME / name, copy)
    done = run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(copy))
    assert done.returncode == 0, done.stderr
    return next(folder.glob("*.whl"))


def install(made, home):
    """The `muster` of a new environment at `home`, and the bytes it takes there beyond Python and pip."""
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    before = _size(home)
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", str(made))
    assert done.returncode == 0, done.stderr
    return home / "bin/muster", _size(home) - before


def install_beside(made, home):
    """The `muster` of a new environment at `home`, with the libraries of this one: torch is not installed again."""
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", "--no-deps", str(made))
    assert done.returncode == 0, done.stderr
    packages = next(home.glob("lib/python*/site-packages"))
    (packages / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    return home / "bin/muster"


def beside(home, *packages):
    """The programs of a new environment with these packages; torch and the other libraries are this one's.

    Skips the test where pip cannot install them.
    """
    assert run(sys.executable, "-m", "venv", str(home)).returncode == 0
    libraries = next(home.glob("lib/python*/site-packages"))
    (libraries / "libraries.pth").write_text(sysconfig.get_path("purelib"))
    done = run(str(home / "bin/pip"), "install", "--quiet", "--disable-pip-version-check", *packages)
    if done.returncode:
        pytest.skip(f"pip cannot install {', '.join(packages)}: {done.stderr.strip().splitlines()[-1][:200]}")
    return home / "bin"


def _size(folder):
    """Bytes of the files: what blocks they take differs from one file system to the next."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())
