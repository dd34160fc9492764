"""The shell scripts for hosts: every shell parses them, a wheel contains them, and Python modules embed no shell."""

import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

from deploy.core.scripts import Scripts

# These tests start programs.
pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "deploy").rglob("scripts/*.sh"))
SHELLS = [shell for shell in (["dash"], ["bash", "--posix"], ["busybox", "ash"]) if shutil.which(shell[0])]


def sent(file: Path) -> str:
    """The text of a script as it is sent to a host."""
    return Scripts(str(file.parents[1] / "any.py")).text(file.stem)


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_every_shell_of_a_host_can_parse_every_script(shell: list[str]) -> None:
    for file in FILES:
        done = subprocess.run([*shell, "-n"], input=sent(file), capture_output=True, text=True, check=False)
        assert (done.returncode, done.stderr) == (0, ""), file


def test_a_script_is_sent_as_one_text_without_comments() -> None:
    for file in FILES:
        lines = [line.strip() for line in sent(file).splitlines()]
        assert lines, file
        assert not [line for line in lines if line.startswith((". ./", "#"))], file


def test_arguments_are_never_run_as_shell(tmp_path: Path) -> None:
    (tmp_path / "scripts").mkdir()
    (tmp_path / "scripts/say_it.sh").write_text('#!/bin/sh\n# Says it.\n. ./said.sh\nsaid "$1"\n')
    (tmp_path / "scripts/said.sh").write_text('#!/bin/sh\nsaid() { printf %s "$1"; }\n')
    words = "$(touch pwned)'; touch pwned #"
    argv = Scripts(str(tmp_path / "any.py"))("say-it", words)
    assert argv[3:] == ("say-it", words)
    assert subprocess.run(argv, cwd=tmp_path, capture_output=True, text=True, check=True).stdout == words
    assert not (tmp_path / "pwned").exists()


def test_a_wheel_has_every_script() -> None:
    globs = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]["*"]
    packed = {path for glob in globs for path in (ROOT / "deploy").glob(glob)}
    assert packed >= set(FILES)


def test_no_other_module_embeds_shell_for_hosts() -> None:
    """Some modules build one line of shell.

    door/framing.py builds the line that wraps each command; engine/compose.py runs a line on this machine.
    host/commands.py has one that finds the Python of an image, in its container; fabric.py runs the user's own line.
    """
    at_home = {"fabric.py", "host/commands.py", "core/scripts.py", "engine/compose.py", "door/framing.py"}
    files = {str(file.relative_to(ROOT / "deploy")): file.read_text() for file in (ROOT / "deploy").rglob("*.py")}
    assert {name for name, text in files.items() if re.search(r'"sh",\s*"-c"|\bsh -c\b', text)} == at_home
