"""Which process trained below a rank, and how it ended: one that the program ends on purpose has not failed."""

import os
import subprocess
import sys

import pytest

from tests.started import started
from trainer.node.ending import judge_below, training_alone

LIFE = "0-0-1"
TRAINS = (
    "import sys, time; sys.modules['_muster_watch.world_notes']._note(stepped=True); print(flush=True); time.sleep(60)"
)
# A shell, in its own process group, is between the program and the process that trains.
PROGRAM = """
import os, signal, subprocess, sys
line = ["sh", "-c", f'"{{sys.executable}}" -c "$0"; true', {trains!r}]
child = subprocess.Popen(line, start_new_session=True, stdout=subprocess.PIPE)
child.stdout.readline()
{ends}
child.wait()
"""


@pytest.mark.parametrize(
    ("ends", "error"),
    [
        ("os.killpg(os.getpgid(child.pid), signal.SIGTERM)", None),
        ("os.kill(-child.pid, signal.SIGKILL)", None),
        ("os.killpg(child.pid, 0); subprocess.run(['kill', '-9', '--', f'-{child.pid}'])", "it was killed by a signal"),
    ],
)
def test_a_program_may_kill_the_process_group_that_trains_below_it(tmp_path, ends, error):
    """`Popen(..., shell=True, start_new_session=True)` and `os.killpg` is how Python programs end a training."""
    given = {"MUSTER_OUTCOME_DIR": str(tmp_path), "MUSTER_LIFE": LIFE, "PYTHONPATH": str(training_alone.SITE)}
    program = PROGRAM.format(trains=TRAINS, ends=ends)
    environment = {**os.environ, **given, "RANK": "0"}
    subprocess.run([sys.executable, "-c", program], env=environment, check=True, timeout=60)
    crash = judge_below.judge(tmp_path, LIFE, 1, False, False)
    assert (crash and crash.error) == error


@pytest.mark.long
@pytest.mark.parametrize(
    ("program", "has_torch", "fails"), [(False, True, True), (False, False, False), (True, False, True)]
)
def test_a_rank_that_leaves_a_python_job_behind_has_not_ended_well(tmp_path, program, has_torch, fails):
    """The script submits itself as a job and ends: nothing has trained, and the run's end would end the job.

    A server without torch that a script leaves behind is no such job.
    """
    (tmp_path / "job.py").write_text("import torch\n" * has_torch + "print(flush=True); input()")
    given = {**os.environ, "MUSTER_LIFE": LIFE}
    line, pipe = [sys.executable, "-m", "job"], subprocess.PIPE
    with started(line, cwd=tmp_path, env=given, stdin=pipe, stdout=pipe) as job:
        job.stdout.readline()
        crash = judge_below.judge(tmp_path, LIFE, 1, False, program)
        job.communicate(b"\n")
    assert (crash and crash.why) == ("job, which it started, has not ended" if fails else None)
    assert judge_below.judge(tmp_path, LIFE, 1, False, program) is None
