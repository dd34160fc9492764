"""A terminal beside the ranks: what is pasted reaches the program, and nothing waits for ever."""

import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from lab import waiting

HOME = Path(__file__).resolve().parents[5]
PASTED = b"a line of some length that is pasted\n" * 6000


@pytest.fixture
def terminal(tmp_path):
    started = []

    def start(command):
        words = [sys.executable, "-P", "-m", "muster.trainer.node", "within", "--terminal", "--", "sh", "-c"]
        own = {**os.environ, "PYTHONPATH": str(HOME), "MUSTER_RUN_DIR": str(tmp_path)}
        shown = tmp_path / "shown"
        with shown.open("wb") as file:
            line = ["nohup", *words, f"stty -echo; echo ready; {command}"]
            started.append(subprocess.Popen(line, env=own, stdin=subprocess.PIPE, stdout=file))
        waiting.until(lambda: b"ready" in shown.read_bytes(), "the program to begin")
        started[-1].stdin.write(b"d" + struct.pack(">I", len(PASTED)) + PASTED)
        started[-1].stdin.flush()
        return started[-1], shown

    yield start
    for process in started:
        process.kill()
        process.wait()


def test_a_long_text_that_is_pasted_reaches_a_program_that_prints_while_it_reads(terminal):
    process, shown = terminal("exec cat")
    waiting.until(lambda: shown.read_bytes().count(b" pasted\r\n") == 6000, "what cat makes of it")
    process.stdin.close()
    assert process.wait(30) == 129


def test_who_leaves_ends_a_program_that_has_read_nothing_of_it(terminal):
    process, _ = terminal("exec sleep 4711")
    process.stdin.close()
    assert process.wait(30) == 129
