"""On a host, a `muster logs --grep` pattern matches a line's text, never its time stamp, in every kind of log."""

import os
import shutil
import subprocess

import pytest

from deploy.host import commands

# These tests start other programs.
pytestmark = pytest.mark.long

STAMP = "2026-11-27T03:00:00.000000001Z"
LINES = ("a first", "then a/b", "loss nan", "[3] 2027", "atb\\", "a\tb")
# A wrapper that refuses GNU options, as the tools in busybox do.
PLAIN = """#!/bin/sh
for word; do case $word in -nu* | --line-buffered) exit 1 ;; esac; done
exec {} "$@"
"""


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("^a|nan$", [0, 2, 4, 5]),
        ("nan|^then", [1, 2]),
        ("(^a|then) ", [0, 1]),
        (r"a\tb|\x33", [4]),
        (r"[\n]$", [2, 4]),
        ("a/b", [1]),
        (r"\[[[:digit:]]\]", [3]),
        ("2026", []),
        ("", [0, 1, 2, 3, 4, 5]),
    ],
)
@pytest.mark.parametrize("plain", ["", "sed", "grep"])
def test_a_pattern_matches_the_text_after_the_time_stamp(tmp_path, monkeypatch, plain, pattern, found):
    docker = tmp_path / "docker"
    docker.write_text("#!/bin/sh\ncat <<'END'\n" + "".join(f"{STAMP} {line}\n" for line in LINES) + "END\n")
    docker.chmod(0o755)
    if plain:
        (tmp_path / plain).write_text(PLAIN.format(shutil.which(plain)))
        (tmp_path / plain).chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    for mark in ("", "mark"):
        command = commands.console("run", "", mark, pattern)  # the command kills its whole process group when it ends
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, start_new_session=True)
        assert done.stdout.splitlines() == [f"{STAMP} {LINES[each]}" for each in found], done.stderr
        # A rank's own log has no time stamps.
        log = [shutil.which("sh"), "-c", commands.script.text("filter_function") + "\nfilter"]
        given = {"pattern": pattern, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(log, env=given, input="\n".join(LINES), capture_output=True, text=True, timeout=30)
        assert done.stdout.splitlines() == [LINES[each] for each in found], done.stderr
