"""A batch script in a real bash, with stand-ins for Slurm's commands."""

import re
import subprocess

import pytest

from deploy.run.sbatch import SlurmJob, batch_script


def life(code, state, asked, stop="", setup=(), cpus="", variables=None):
    """Run the script with stand-ins for Slurm's commands; return its exit code and what it asked Slurm to do."""
    srun = f"srun() {{ echo srun $*; {'trap : TERM; sleep 1 & wait; ' if asked else ''}return {code}; }}"
    stand_ins = (
        f'{srun}; squeue() {{ echo {state}; }}; scontrol() {{ echo "scontrol $*"; return 1; }}; '
        'scancel() { echo "scancel $*"; kill -TERM "$step"; }; SLURM_JOB_ID=7; '
        f"SLURM_CPUS_PER_TASK={cpus}; "
    )
    body = batch_script(SlurmJob("t", 1, ("a",), variables or {}, setup=setup, stop=stop))
    ask = "(sleep 0.3; kill -TERM $$) & " if asked else ""
    return subprocess.run(["bash", "-c", stand_ins + ask + body], capture_output=True, text=True, timeout=20)


@pytest.mark.parametrize(
    ("code", "state", "requeued"),
    [(0, "RUNNING", False), (1, "RUNNING", False), (75, "RUNNING", True), (75, "COMPLETING", False)],
)
def test_only_a_run_that_stopped_with_a_checkpoint_is_requeued_unless_it_was_cancelled(code, state, requeued):
    done = life(code, state, asked=False)
    assert ("scontrol requeue 7" in done.stdout) == requeued
    assert done.returncode == code


def test_the_step_gets_the_batch_scripts_signal_and_the_job_gets_the_steps_code():
    done = life(75, "RUNNING", asked=True)
    assert "scancel --signal=TERM 7" in done.stdout
    assert "scontrol requeue 7" in done.stdout
    assert done.returncode == 75


def test_a_job_that_was_asked_to_stop_is_not_requeued(tmp_path):
    (tmp_path / "stop").touch()
    assert "requeue" not in life(75, "RUNNING", asked=False, stop=str(tmp_path / "stop")).stdout


@pytest.mark.parametrize(("job", "requeued"), [("job-7", False), ("job-6", True)])
def test_a_job_at_its_time_limit_is_not_requeued_and_an_earlier_jobs_limit_does_not_count(tmp_path, job, requeued):
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes" / ".n1.limit").write_text(f"{job} 17.0 reached its limit of 8 h (--max-hours)")
    for hours in ({"MUSTER_MAX_HOURS": "8"}, {}):
        done = life(75, "RUNNING", asked=False, variables={"MUSTER_RUN_DIR": str(tmp_path), **hours})
        assert ("requeue 7" in done.stdout) == (requeued or not hours)


def test_a_failed_setup_line_ends_the_job_before_anything_starts():
    done = life(0, "RUNNING", asked=False, setup=("true # a comment", "source /nowhere/bin/activate", "true"))
    assert done.returncode == 1
    assert "error: this line of --setup failed: source /nowhere/bin/activate" in done.stderr
    assert "srun" not in done.stdout
    assert life(0, "RUNNING", asked=False, setup=("true # a comment",)).returncode == 0


def test_the_step_gets_the_jobs_cpus_and_requests_none_that_the_job_lacks():
    assert "--cpus-per-task=8 a" in life(0, "RUNNING", asked=False, cpus="8").stdout
    assert "--cpus-per-task" not in life(0, "RUNNING", asked=False).stdout


def test_bash_accepts_a_generated_script():
    job = SlurmJob("t", 2, ("a",), {"B": "it's"}, ("--x=a b",), 8, ("module load cuda",), run="r1", stop="/s t/x")
    done = subprocess.run(["bash", "-n"], input=batch_script(job), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^export MUSTER_RUN_DIR=\"\$PWD\"/runs/r1 MUSTER_RUN_ID=r1$", batch_script(job), re.M)
