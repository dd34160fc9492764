"""`muster deploy --slurm` on a real Slurm, through a real sshd: submit once, follow, detach, stop, fetch."""

import signal
import subprocess
import sys

import pytest

from tests.checkout import HOME

from .test_slurm import STEPS

PROGRAM = """
from muster import Cluster
cluster = Cluster(slurm="login")
run = cluster.deploy(["steps.py"], nodes=2, run="api", env={"QUICK": "1"})
outcome = run.wait()
print(outcome.verdict, outcome.code, cluster.run("api").wait() == outcome, (run.fetch() / "work/training").is_dir())
try:
    cluster.deploy("wrong.py", run="api-wrong").wait()
except Exception as failed:
    print(type(failed).__name__, failed.outcome.verdict, "no such data" in failed.message)
"""
pytestmark = pytest.mark.torch
SESSIONS = 'kill $(pgrep -f "[s]shd: muster@notty")'
# An sbatch whose answer is lost: the connection is cut once Slurm has the job.
CUT_SBATCH = f"""#!/bin/sh
answer=$(/usr/bin/sbatch "$@"); code=$?
[ "$1" != --parsable ] || {{ {SESSIONS}; sleep 1; }}
echo "$answer"; exit $code
"""


def jobs_of(slurm, name: str) -> list[str]:
    return slurm.out(f"squeue --noheader --states=all --format=%i --name={name}").split()


@pytest.fixture
def project(laptop):
    (laptop.work / "steps.py").write_text(STEPS)
    return laptop


def test_a_run_survives_a_cut_connection_a_closed_laptop_and_a_preemption(slurm, project):
    deploy = project.start("deploy", "--slurm", "login", "--nodes", "2", "--run", "long", "--", "steps.py")
    project.hears("begins at 0")
    slurm.out(SESSIONS, user="root")
    project.hears("connected again")
    deploy.send_signal(signal.SIGINT)
    assert deploy.wait(20) == 130
    attach = project.start("attach", "--run", "long")
    project.hears("runs on n1, n2")
    slurm.out("sbatch --partition=high --exclusive --nodes=2 --output=/dev/null --wrap 'sleep 1'")
    code, said = attach.wait(120), project.said.read_text()
    assert code == 0, said
    assert "Slurm starts it again" in said
    assert "done at 60" in said
    stopped = slurm.out("cat ~/.muster/runs/long/job.out").partition("stopped at step ")[2].partition(",")[0]
    assert f"begins at {stopped}" in said
    (number,) = jobs_of(slurm, "long")
    assert slurm.job(number)["Restarts"] == "1"
    assert 0 < int(stopped) < 60
    assert project.fab("attach", "--run", "long")[0] == 0
    assert project.fab("fetch", "--run", "long")[0] == 0
    assert list((project.work / "runs/long/work/training/checkpoints").glob("step-*"))
    assert not (project.work / "runs/long/work/steps.py").exists(), "it was sent, and is as it was"


def test_a_lost_sbatch_answer_submits_nothing_twice_and_stop_leaves_a_checkpoint(slurm, project):
    slurm.shell(f"cat >/usr/local/bin/sbatch <<'END'\n{CUT_SBATCH}END\nchmod 755 /usr/local/bin/sbatch", user="root")
    try:
        code, said = project.fab("deploy", "--slurm", "login", "--run", "cut", "--detach", "--", "steps.py")
    finally:
        slurm.out("rm /usr/local/bin/sbatch", user="root")
    assert code == 0, said
    (number,) = jobs_of(slurm, "cut")
    assert f"cut is job {number}" in said
    slurm.until(lambda: "begins at 0" in project.fab("logs", "--run", "cut")[1])
    assert f"job {number} running" in project.fab("status", "--run", "cut")[1]
    code, said = project.fab("stop", "--run", "cut")
    assert code == 0, said
    assert project.fab("attach", "--run", "cut")[0] == 75
    assert "stopped at step" in project.fab("logs", "--run", "cut", "--grep", "stopped")[1]
    assert slurm.job(number)["Restarts"] == "0"


def test_a_stopped_run_resumes_in_a_new_job_with_its_files_and_the_current_folder(slurm, project):
    (project.work / "notes").write_text("sent")
    steps = (project.work / "steps.py").read_text()
    (project.work / "steps.py").write_text(f"open('notes', 'w').write('written')\n{steps}")
    code, said = project.fab("deploy", "--slurm", "login", "--nodes", "2", "--run", "on", "--detach", "--", "steps.py")
    assert code == 0, said
    slurm.until(lambda: "begins at 0" in project.fab("logs", "--run", "on")[1])
    code, said = project.fab("deploy", "--slurm", "login", "--resume", "on")
    assert code == 1
    assert "has not ended (RUNNING)" in said
    assert project.fab("stop", "--run", "on")[0] == 0
    (project.work / "steps.py").write_text(steps.replace("else 1)", "else 0)"))
    stopped = project.fab("logs", "--run", "on")[1].partition("stopped at step ")[2].partition(",")[0]
    code, said = project.fab("deploy", "--slurm", "login", "--resume", "latest", timeout=300)
    assert code == 0, said
    assert f"begins at {stopped}" in said
    assert 0 < int(stopped) < 60
    assert "done at 60" in said
    assert "1 file of" in said, "the script changed notes"
    assert slurm.out("cat ~/.muster/runs/on/work/notes") == "written"
    first, second = sorted(jobs_of(slurm, "on"), key=int)
    assert slurm.job(first)["JobState"] != "COMPLETED"
    assert slurm.job(second)["JobState"] == "COMPLETED"
    assert slurm.job(second)["NumNodes"] == "2", "as its first start asked"


def test_a_program_submits_waits_and_fetches(slurm, project):
    steps = project.work / "steps.py"
    steps.write_text(steps.read_text().replace("time.sleep(", "time.sleep(0 if 'QUICK' in os.environ else "))
    (project.work / "wrong.py").write_text("raise SystemExit('no such data')")
    environment = {**project.environment, "PYTHONPATH": str(HOME)}
    line = [sys.executable, "-c", PROGRAM]
    done = subprocess.run(line, cwd=project.work, env=environment, capture_output=True, text=True, timeout=300)
    assert done.stdout.splitlines() == ["done 0 True True", "RunFailed failed True"], done.stderr


def test_a_run_ends_with_its_job_and_a_refused_submission_leaves_nothing(slurm, project):
    (project.work / "wrong.py").write_text("raise SystemExit('no such data')")
    code, said = project.fab("deploy", "--slurm", "login", "--run", "wrong", "--", "wrong.py")
    assert code == 1
    assert "no such data" in said
    code, said = project.fab(
        "deploy", "--slurm", "login", "--run", "none", "--sbatch=--partition=moon", "--", "steps.py"
    )
    assert code == 1
    assert "invalid partition" in said
    assert not (project.work / "runs/none").exists()
    assert "none" not in slurm.out("ls ~/.muster/runs").split()
