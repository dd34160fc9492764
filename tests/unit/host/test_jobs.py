"""A login node's answer about a job is parsed strictly: the login node may be anybody's."""

import os
import subprocess

import pytest

from deploy.core.errors import BadAnswer
from deploy.core.names import RunId
from deploy.host import jobs

LINE = (
    "JobId=12 JobName=r1 UserId=u(1000) Priority=1 JobState={state} Reason={reason} Dependency=(null) Requeue=1 "
    "Restarts=2 BatchFlag=1 ExitCode=75:0 RunTime=1-02:03:04 TimeLimit=01:00:00 NodeList=n[1-2] "
    "Command=/h/JobState=COMPLETED WorkDir=/h"
)


def line(state="RUNNING", reason="None"):
    return f"job {LINE.format(state=state, reason=reason)}"


def test_a_line_of_scontrol_is_parsed():
    job = jobs.parse_job([line("PENDING", "ReqNodeNotAvail, UnavailableNodes:n7"), "hosts n1 n2 n1"])
    assert job == jobs.Job(
        "PENDING", "ReqNodeNotAvail, UnavailableNodes:n7", ("n1", "n2"), 75, 0, 2, "01:00:00", 93784.0
    )
    assert jobs.parse_job([line()]).reason == ""


def test_a_job_that_the_controller_forgot_is_read_from_the_accounting_or_is_gone():
    assert jobs.parse_job(["record CANCELLED by 1000|0:15"]) == jobs.Job("CANCELLED", signal=15)
    assert jobs.parse_job(["job gone"]).state == jobs.GONE
    assert jobs.parse_job(["job away"]).state == jobs.AWAY


@pytest.mark.parametrize(
    "lines",
    [
        *([], [""], ["job "], ["job JobState="], ["job JobState=rm -rf"], ["record |"], [line(), "hosts ../../x"]),
        *([line(), "hosts n1 $(reboot)"], ["job " + "x" * 100_000], ["record \x1b[2J|0:0"]),
    ],
)
def test_anything_else_is_a_bad_answer(lines):
    with pytest.raises(BadAnswer):
        jobs.parse_job(lines)


def test_the_last_line_of_sbatch_counts_and_its_job_id_must_be_a_number():
    assert jobs.parse_submitted("Welcome!\njob 12\n") == ("job", "12")
    assert jobs.parse_submitted("job 12;cluster1") == ("job", "12")
    assert jobs.parse_submitted("unknown") == ("unknown", "")
    for answer in ("", "job", "job -1", "job 0", "job 12; reboot", "job 12\x1b[2J", "12", "job $(id)"):
        with pytest.raises(BadAnswer):
            jobs.parse_submitted(answer)


def test_a_look_at_the_cluster_returns_an_absolute_path_or_the_problem():
    assert jobs.parse_look("version slurm 24.11\nshared /scratch/u\n").shared == "/scratch/u"
    assert jobs.parse_look("lacks sbatch flock\nversion \n").lacks == ("sbatch", "flock")
    assert jobs.parse_look("version \nwrong no such folder there\n").wrong
    for answer in ("", "shared scratch", "shared /a\x1b[2J", "hello"):
        with pytest.raises(BadAnswer):
            jobs.parse_look(answer)


def test_the_state_answer_has_the_job_and_the_last_words():
    number, job, words = jobs.parse_state(f"id 12\n{line()}\nend\nlast words\nend\n")
    assert (number, job and job.state, words) == ("12", "RUNNING", "last words\nend\n")
    assert jobs.parse_state("unsubmitted\nend\n")[1] is None
    assert jobs.parse_state("submitting\nend\n")[2] == "submitting"


def state_of(tmp_path, number, **programs):
    """What `jobs.state` reports about a run on a login node where these programs are installed."""
    (tmp_path / ".muster/runs/r1").mkdir(parents=True)
    (tmp_path / ".muster/runs/r1/.submitting").touch()
    (tmp_path / ".muster/runs/r1/.submit.lock").touch()
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = {"HOME": str(tmp_path), "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    asked = jobs.state(RunId("r1"), number)
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, timeout=20, check=True)
    return jobs.parse_state(done.stdout)


def test_while_the_controller_is_silent_a_job_may_have_been_submitted(tmp_path):
    number, job, _ = state_of(tmp_path, "", squeue="exit 1")
    assert (number, job and job.state) == ("", jobs.AWAY)


def test_a_job_left_by_an_interrupted_submission_is_found_if_there_is_one(tmp_path):
    assert state_of(tmp_path / "none", "", squeue="exit 0")[1] is None
    scontrol = f"[ $2 != job ] || echo '{line().removeprefix('job ')}'"
    assert state_of(tmp_path / "one", "", squeue="echo 12", scontrol=scontrol)[0] == "12"


def test_an_scontrol_complaint_about_its_configuration_is_not_the_job_state(tmp_path):
    said = "scontrol: error: _parse_next_key: Parsing error at unrecognized key: NewKey"
    answer = f"case $2 in job) echo '{line().removeprefix('job ')}' ;; *) echo n1 ;; esac"
    _, job, _ = state_of(tmp_path, "12", scontrol=f"echo '{said}' >&2\n{answer}")
    assert job is not None
    assert (job.state, job.hosts) == ("RUNNING", ("n1",))
