"""attach, stop and resume for a run on this machine, as a user types them in a second terminal."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from deploy.local import processes
from lab.waiting import until

MUSTER = Path(sys.executable).with_name("muster")
SCRIPT = "import time\nfor step in range(100000):\n    print('step', step, flush=True)\n    time.sleep(0.1)\n"


@pytest.fixture
def project(tmp_path):
    """A user's folder, in which the user types commands."""
    (tmp_path / "train.py").write_text(SCRIPT)
    yield tmp_path
    for pids in processes.runs_alive(tmp_path / "runs").values():
        processes.kill(pids)


def start(project, *words):
    quiet = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True, "stdin": subprocess.DEVNULL}
    return subprocess.Popen([MUSTER, *words], cwd=project, **quiet)


def typed(project, *words):
    command = start(project, *words)
    out, _ = command.communicate(timeout=90)
    return command.returncode, out


def begin(project, *words, run="r1"):
    """Start a run of one node that prints its steps; return the command and the run's id."""
    command = start(project, *(words or ("up", "--backend", "processes", "--run", run, "train.py")))
    until(lambda: "step 3" in typed(project, "logs", "--run", run)[1], "the script", 60)
    return command, os.readlink(project / "runs/latest")


def test_a_second_terminal_follows_leaves_and_stops_a_run(project):
    first, run = begin(project)
    left = start(project, "attach")
    until(lambda: "step" in left.stdout.readline(), "its output", 30)
    left.send_signal(signal.SIGINT)
    words = left.communicate(timeout=30)[0]
    assert (left.returncode, first.poll()) == (130, None)
    assert f"to stop it:   muster stop --run {run}" in words
    follower = start(project, "attach")
    until(lambda: "step" in follower.stdout.readline(), "its output", 30)
    first.send_signal(signal.SIGSTOP)  # like Ctrl-Z in its terminal
    code, out = typed(project, "stop")
    assert code == 0
    assert f"{run}: train.py was asked to stop" in out
    assert f"its files: runs/{run}" in out
    assert [command.wait(timeout=30) for command in (first, follower)] == [75, 75]
    assert not processes.runs_alive(project / "runs")


def test_a_run_in_processes_is_resumed_in_processes_and_killed_at_once_if_asked(project):
    first, run = begin(project)
    typed(project, "stop")
    first.communicate(timeout=30)
    again, same = begin(project, "resume")
    assert same == run
    assert typed(project, "stop", "--now")[0] == 0
    out = again.communicate(timeout=30)[0]
    assert "local processes" in out
    assert "killed immediately, as requested" in out


def test_a_follower_learns_that_the_runs_own_command_was_killed(project):
    first, run = begin(project)
    follower = start(project, "attach")
    until(lambda: "step" in follower.stdout.readline(), "its output", 30)
    first.kill()
    out = follower.communicate(timeout=60)[0]
    assert follower.returncode == 75
    assert "its command `muster up` was killed" in out
    assert typed(project, "status")[1].split()[:2] == [run, "stopped"]


def test_with_two_live_runs_stop_guesses_none(project):
    commands = [begin(project, run=run) for run in ("r1", "r2")]
    runs = [run for _, run in commands]
    assert len({*runs}) == 2
    code, out = typed(project, "stop")
    assert code == 2
    assert all(run in out for run in runs)
    began = time.monotonic()
    assert [typed(project, "stop", "--run", run)[0] for run in runs] == [0, 0]
    assert time.monotonic() - began < 40
    assert [command.wait(timeout=30) for command, _ in commands] == [75, 75]
