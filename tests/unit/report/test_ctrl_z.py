"""Other writers on the terminal of a view: a shell after Ctrl-Z, and `tee`, which shows what the ranks print."""

import os
import pty
import select
import shlex
import subprocess
import sys
import time
from pathlib import Path

import pytest

PROGRAM = """
import time
from deploy.report.console import Console
from deploy.report.interrupts import Interrupts
from deploy.run.progress import State

with Interrupts(Console()) as interrupts:
    interrupts.hold()
    with interrupts._console.following(State(("master",), script=True), "train.py", "") as tell:
        while not interrupts.requests():
            tell([])
            time.sleep(0.05)
"""
HIDE, SHOW, UP = "\x1b[?25l", "\x1b[?25h", "\x1b[1A"


class Shell:
    """bash on a pseudo-terminal."""

    def __init__(self, folder: Path) -> None:
        self._above, below = pty.openpty()
        environment = {**os.environ, "TERM": "xterm", "COLUMNS": "80", "LINES": "24", "PS1": "$ "}
        self.process = subprocess.Popen(
            ["bash", "--norc", "-i"], cwd=folder, env=environment, stdin=below, stdout=below, stderr=below,
            preexec_fn=lambda: os.login_tty(0),
        )  # fmt: skip
        os.close(below)
        self.screen = ""

    def type(self, keys: str) -> None:
        self.screen = ""
        os.write(self._above, keys.encode())

    def until(self, words: str, within_s: float = 30) -> str:
        """The output since the last typed keys, as soon as it contains these words."""
        end = time.monotonic() + within_s
        while words not in self.screen and time.monotonic() < end:
            if select.select([self._above], [], [], 0.2)[0]:
                self.screen += os.read(self._above, 1 << 16).decode(errors="replace")
        assert words in self.screen
        return self.screen

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        os.close(self._above)


def test_ctrl_z_leaves_the_terminal_to_the_shell_and_fg_draws_below_what_was_typed(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)
    shell = Shell(tmp_path)
    try:
        home = Path(__file__).resolve().parents[3]
        shell.type(f"PYTHONPATH={shlex.quote(str(home))} {shlex.quote(sys.executable)} program.py\n")
        shell.until("starting")
        shell.type("")
        shell.until("starting")  # the view is drawn repeatedly
        shell.type("\x1a")
        stopped = shell.until("Stopped")
        assert stopped.rindex(SHOW) > stopped.rfind(HIDE)
        shell.type("echo typed; fg\n")
        shell.until("typed\r\n")
        back = shell.until(HIDE).partition(HIDE)[2] + shell.until("starting").rpartition(HIDE)[2]
        assert UP not in back.partition("starting")[0]
        shell.type("\x03")
        assert shell.until("stopping").count("killing") == 0
    finally:
        shell.close()


PRINTS = """
import time
from deploy.report.console import Console
from deploy.run.progress import State

with Console().following(State(("master",), script=True), "train.py", "") as tell:
    for number in range(5):
        line = {"kind": "output", "t": 1.0, "node": "master", "rank": 0, "line": f"epoch {number}", "moving": False}
        tell([line])
        time.sleep(0.2)
"""


@pytest.mark.long
@pytest.mark.parametrize("where", ["| tee log; echo o''ver", "& wait; echo o''ver"])
def test_a_run_next_to_another_writer_overwrites_nothing(tmp_path, where):
    """With `muster up train.py | tee log`, each line of the script once vanished below the next drawing of the view."""
    (tmp_path / "program.py").write_text(PRINTS)
    shell = Shell(tmp_path)
    try:
        home = Path(__file__).resolve().parents[3]
        shell.type(f"PYTHONPATH={shlex.quote(str(home))} {shlex.quote(sys.executable)} program.py {where}\n")
        said = shell.until("over\r\n")
        assert [line for line in said.split("\r\n") if line.startswith("epoch")] == [f"epoch {at}" for at in range(5)]
        assert UP not in said
    finally:
        shell.close()
