"""A variable given to `make` is used, or refused before anything runs; `muster` starts in a folder of any name."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]


def make(*words, **more):
    """Run `make -n` with these words: it prints the commands and runs none."""
    variables = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    line = ["make", "-n", *words]
    return subprocess.run(line, cwd=HOME, env={**variables, **more}, capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    ("words", "unknown", "hint"),
    [
        (("up", "HOSTS=a,b"), "HOSTS", "on hosts: .venv/bin/muster deploy --hosts a,b"),
        (("up", "workers=4"), "workers", "it takes WORKERS"),
        (("up", "NODES=2", "WORKERS=1"), "NODES", "it takes WORKERS"),
        (("preflight", "RUN=latest"), "RUN", "it takes HOSTS WORKERS"),
        (("down", "RUN=latest"), "RUN", "it takes nothing"),
        (("HOSTS=a",), "HOSTS", "make help"),
    ],
)
def test_a_variable_that_a_target_does_not_accept_is_refused_with_those_it_accepts(words, unknown, hint):
    done = make(*words)
    assert (done.returncode, done.stdout) == (2, "")
    assert f": {unknown}: not known" in done.stderr
    assert hint in done.stderr


@pytest.mark.parametrize(
    "words",
    [
        ("up", "WORKERS=4", "BACKEND=docker", "SCRIPT=train.py --x", "FOLDER=a", "RESUME=latest", "ARGS=--x", "JSON=1"),
        ("preflight", "HOSTS=rack-9"),
        ("report", "RUN=latest"),
        ("up", "PYTHON=python3.12", "TORCH_INDEX=x", "MUSTER_SSH_CONFIG=x"),
        ("image", "rack", "TARGET=cpu", "NODES=2"),
        ("rack-down", "RACK=wide", "ALL=1"),
        ("fuzz", "SECONDS=1", "SEED=2", "COUNT=3"),
        ("test-all", "IN=tests/cluster"),
        ("gpu-check", "ARGS=--x"),
    ],
)
def test_every_variable_in_the_help_and_the_pages_is_accepted(words):
    done = make(*words)
    assert done.returncode == 0, done.stderr


def test_shell_variables_are_ignored_and_a_wrong_target_is_reported_first():
    assert make("up", HOSTS="a,b", NODES="3").returncode == 0
    assert "No rule to make target" in make("upp", "HOSTS=a").stderr


@pytest.mark.long
@pytest.mark.parametrize("name", ["My Projects", "mü ster", 'it\'s $HOME "here"', "deep/" * 60])
def test_the_command_of_a_checkout_starts_from_a_folder_of_any_name_and_through_a_link(name, tmp_path):
    """The kernel accepts no blank and no long path behind #!. A home may contain a folder `deploy`."""
    home = tmp_path / name
    (home / "requirements").mkdir(parents=True)
    for file in ("Makefile", "requirements/muster.py"):
        shutil.copy(HOME / file, home / file)
    (home / "deploy").symlink_to(HOME / "deploy")
    bin = home / ".venv/bin"
    bin.mkdir(parents=True)
    (bin / "python").symlink_to(sys.executable)
    # From Python 3.13 on, the environment is the folder of the link, not the folder that the link leads to.
    shutil.copy(Path(sys.prefix, "pyvenv.cfg"), bin.parent)
    (bin.parent / "lib").symlink_to(Path(sys.prefix, "lib"))
    (home / ".venv/.ready").touch()
    # `-o`: make takes the environment for up to date.
    done = subprocess.run(
        ["make", "-o", ".venv/.ready", ".venv/bin/muster"], cwd=home, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    link = tmp_path / "login/.local/bin/muster"
    link.parent.mkdir(parents=True)
    (tmp_path / "login/deploy").mkdir()
    link.symlink_to(bin / "muster")
    for typed in (bin / "muster", link):
        shown = subprocess.run([typed, "--version"], capture_output=True, text=True, check=False)
        assert shown.stdout.startswith("muster "), shown.stderr


def test_a_users_pip_user_and_cdpath_break_no_target(tmp_path):
    """With `PIP_USER=1`, pip installs into no environment; with `CDPATH`, `$(cd ... && pwd)` prints two lines."""
    (tmp_path / "seen.mk").write_text("seen:\n\t@env\n")
    variables = {**os.environ, "PIP_USER": "1", "CDPATH": "/tmp"}
    line = ["make", "-f", HOME / "Makefile", "-f", tmp_path / "seen.mk", "seen"]
    shown = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True, check=True).stdout
    assert "\nPIP_USER=0\n" in f"\n{shown}"
    assert "\nCDPATH=" not in f"\n{shown}"


@pytest.mark.parametrize(("beside", "taken"), [("python3.12", "python3.12"), ("python3.9", "python3")])
def test_if_python3_is_too_old_a_newer_python_on_the_path_is_used(beside, taken, tmp_path):
    """Ubuntu 22.04 has Python 3.10 as `python3`, and many of its machines have a newer one, too."""
    for name in ("python3", beside):
        (tmp_path / name).write_text(f"#!/bin/sh\nexit {0 if name == taken != 'python3' else 1}\n")
        (tmp_path / name).chmod(0o755)
    (tmp_path / "seen.mk").write_text("$(info $(PYTHON))\nseen:;\n")
    variables = {key: value for key, value in os.environ.items() if key != "PYTHON"} | {"PATH": str(tmp_path)}
    line = [shutil.which("make"), "-s", "-f", HOME / "Makefile", "-f", tmp_path / "seen.mk", "seen"]
    shown = subprocess.run(line, cwd=tmp_path, env=variables, capture_output=True, text=True, check=False)
    assert shown.stdout.split()[0] == taken, shown.stderr
