"""A pattern of `muster logs --grep` finds the text of a line on a host, wherever its log is: never its time."""

import subprocess

import pytest

from deploy.host import commands

# It starts programs.
pytestmark = pytest.mark.long

STAMP = "2026-11-27T03:00:00.000000001Z"
LINES = ("a first", "then a/b", "loss nan", "[3] 2027")


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^a|nan$", [0, 2]),
        ("nan|^then", [1, 2]),
        ("(^a|then) ", [0, 1]),
        ("a/b", [1]),
        (r"\[[[:digit:]]\]", [3]),
        ("2026", []),
        ("", [0, 1, 2, 3]),
    ],
)
def test_a_pattern_finds_the_text_that_comes_after_the_time(tmp_path, monkeypatch, pattern, found):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{STAMP} {line}\n" for line in LINES) + "END\n")
    docker.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for mark in ("", "mark"):
        command = commands.console("run", "", mark, pattern)  # which ends its whole group
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, start_new_session=True)
        assert done.stdout.splitlines() == [f"{STAMP} {LINES[each]}" for each in found], done.stderr
