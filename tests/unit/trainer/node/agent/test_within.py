"""In a terminal next to the ranks, pasted text reaches the program, and nothing waits forever."""

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


def test_a_long_pasted_text_reaches_a_program_that_prints_while_it_reads(terminal):
    process, shown = terminal("exec cat")
    waiting.until(lambda: shown.read_bytes().count(b" pasted\r\n") == 6000, "what cat makes of it")
    process.stdin.close()
    assert process.wait(30) == 129


def test_leaving_the_terminal_ends_a_program_that_has_read_nothing_of_the_text(terminal):
    process, _ = terminal("exec sleep 4711")
    process.stdin.close()
    assert process.wait(30) == 129


@pytest.fixture
def plain(tmp_path):
    """Return a function that runs a shell line next to the ranks, without a terminal, where pidfd_open is refused."""
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


def test_a_command_returns_its_output_and_exit_code_where_pidfd_open_is_refused(plain):
    with plain("sleep 0.3; echo whole; exit 3") as process:
        assert process.stdout.read() == b"whole\n"
        assert process.wait(30) == 3


def test_leaving_ends_all_that_the_command_started_even_what_ignores_sigterm(plain):
    with plain("sh -c 'trap \"\" TERM; echo $$; exec sleep 4711' & wait") as process:
        deaf = int(process.stdout.readline())
        process.stdin.close()
        assert process.wait(30) == 143
    waiting.until(lambda: not waiting.alive(deaf), "the end of what ignores SIGTERM", 10)
