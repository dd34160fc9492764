"""`muster exec` and `muster logs` for a run on this machine, next to its ranks and with the command's own code."""

import contextlib
import os
import pty
import shlex
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab import waiting

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
SCRIPT = """
import os, time
print("loss: nan" if os.environ["RANK"] == "1" else "loss: 0.5", flush=True)
open("here", "w").close()
time.sleep(600)
"""


def fab(*words):
    return subprocess.run([FAB, *words], cwd=HOME, capture_output=True, text=True, timeout=120)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run of two ranks that keeps running during the tests."""
    name, folder = f"test-{uuid.uuid4().hex[:8]}", tmp_path_factory.mktemp("script")
    (folder / "train.py").write_text(SCRIPT)
    line = [
        FAB,
        "up",
        "--backend",
        "processes",
        "--nproc",
        "2",
        "--run",
        name,
        "--folder",
        str(folder),
        "--",
        "train.py",
    ]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    going = subprocess.Popen(line, cwd=HOME, **quiet)
    waiting.until(lambda: len(fab("logs", "--run", name).stdout.splitlines()) == 2, "both ranks")
    yield name
    going.terminate()
    going.wait(timeout=60)
    shutil.rmtree(HOME / "runs" / name, ignore_errors=True)


def test_a_command_runs_in_the_scripts_folder_and_ends_with_its_own_code(run):
    done = fab("exec", "--run", run, "--", "sh", "-c", "ls; echo $MUSTER_NODE $MUSTER_RUN_ID; exit 4")
    assert (done.returncode, done.stdout.splitlines()) == (4, ["here", "train.py", f"master {run}"])
    assert "its rank 2 is not running" in fab("exec", "--run", run, "--rank", "2", "--", "true").stderr


def test_a_command_ends_when_muster_exec_ends(run):
    line = [FAB, "exec", "--run", run, "--", "sh", "-c", "echo $$; sleep 4713"]
    asked = subprocess.Popen(line, cwd=HOME, stdout=subprocess.PIPE, text=True)
    pid = int(asked.stdout.readline())
    assert waiting.alive(pid)
    asked.kill()
    asked.wait()
    waiting.until(lambda: not waiting.alive(pid), "the command to be gone")


def test_a_command_ends_if_nobody_reads_its_output(run):
    line = f"{shlex.join([str(FAB), 'exec', '--run', run, '--', 'yes'])} | head -1"
    assert subprocess.run(line, shell=True, cwd=HOME, capture_output=True, timeout=60).stdout == b"y\n"


def test_ctrl_c_in_muster_shell_goes_to_the_program(run):
    """As at the prompt of `python`, Ctrl-C stops what the program is doing, and nothing else."""
    program = "import time\ntry: print('up', flush=True); time.sleep(600)\nexcept KeyboardInterrupt: print('goes on')"
    line = ["muster", "shell", "--run", run, "--", sys.executable, "-c", program]
    pid, terminal = pty.fork()
    if not pid:
        os.chdir(HOME)
        os.execv(FAB, line)
    seen = b""
    with contextlib.suppress(OSError):  # the terminal's other end is closed
        while piece := os.read(terminal, 1 << 16):
            if b"up" in piece:
                os.write(terminal, b"\x03")
            seen += piece
    os.close(terminal)
    assert (os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), b"goes on" in seen, b"stopped" in seen) == (
        0,
        True,
        False,
    )


def test_logs_can_be_limited_to_a_rank_and_to_a_pattern(run):
    assert fab("logs", "--run", run, "--rank", "0").stdout == "[0]  loss: 0.5\n"
    assert fab("logs", "--run", run, "--grep", "na+n").stdout == "[1]  loss: nan\n"
    assert fab("logs", "--run", run, "--grep", "(").returncode == 2
    nothing = fab("logs", "--run", run, "--grep", "loss: inf")
    assert (nothing.returncode, nothing.stdout) == (0, "")
    assert "no line matches loss: inf" in nothing.stderr
    assert "no times" in fab("logs", "--run", run, "--since", "1m").stderr
