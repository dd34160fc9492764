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


@pytest.fixture
def plain(tmp_path):
    """Starts a shell's line beside the ranks, without a terminal, on a system that tells of no end of a process."""
    (tmp_path / "within.py").write_text(
        "import os, sys\n"
        "def pidfd_open(*_): raise PermissionError(1, 'Operation not permitted')\n"
        "os.pidfd_open = pidfd_open\n"
        "from muster.trainer.node.agent import within\n"
        "sys.exit(within.main())\n"
    )
    words = [sys.executable, tmp_path / "within.py", "--", "sh", "-c"]
    own = {**os.environ, "PYTHONPATH": str(HOME), "MUSTER_RUN_DIR": str(tmp_path)}
    return lambda line: subprocess.Popen([*words, line], env=own, stdin=subprocess.PIPE, stdout=subprocess.PIPE)


def test_a_command_gives_its_words_and_its_code_where_a_kernel_or_container_lets_nobody_wait_by_a_descriptor(plain):
    with plain("sleep 0.3; echo whole; exit 3") as process:
        assert process.stdout.read() == b"whole\n"
        assert process.wait(30) == 3


def test_who_leaves_ends_all_that_the_command_started_also_what_does_not_hear_the_first_signal(plain):
    with plain("sh -c 'trap \"\" TERM; echo $$; exec sleep 4711' & wait") as process:
        deaf = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(30) == 143
    assert not waiting.alive(deaf)
