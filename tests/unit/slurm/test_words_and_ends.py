"""The state of a Slurm job in words, and how a run on Slurm ended."""

import pytest

from deploy.core.facts import NodeState
from deploy.core.names import NodeName
from deploy.host.jobs import AWAY, ENDED, GONE, Job
from deploy.run.progress import State
from deploy.slurm import job_end, words

N1 = NodeName("n1")


def state(*verdicts, began=True, asked=True, script=True):
    made = State((N1,), script=script)
    made.verdicts = [
        {"kind": "verdict", "t": 1.0, "verdict": verdict, "node": "n1", "rank": 0, "message": f"it {verdict}",
         "cause": "ended-from-outside" if verdict == "stopped" and asked else ""}
        for verdict in verdicts
    ]  # fmt: skip
    if began:
        made.ranks.began = {0: "n1"}
    made.nodes.states = {"n1": NodeState(N1, "running")}
    return made


@pytest.mark.parametrize(
    ("slurm", "verdicts", "verdict", "code"),
    [
        ("COMPLETED", ["done"], "done", 0),
        ("COMPLETED", [], "done", 0),
        ("FAILED", ["failed"], "failed", 1),
        ("FAILED", ["stopped", "stopped"], "stopped", 75),
        ("FAILED", ["refused"], "refused", 2),
        ("FAILED", [], "failed", 1),
        ("FAILED", ["done"], "failed", 1),  # another node failed without a verdict
        ("CANCELLED", ["stopped"], "stopped", 75),
        ("CANCELLED", [], "stopped", 75),
        ("CANCELLED", ["failed"], "failed", 1),
        ("TIMEOUT", ["stopped"], "failed", 1),
        ("TIMEOUT", ["done"], "failed", 1),
        ("NODE_FAIL", [], "failed", 1),
        ("PREEMPTED", [], "failed", 1),
        ("OUT_OF_MEMORY", [], "failed", 1),
        ("SOMETHING_NEW", [], "failed", 1),
        (GONE, ["done"], "done", 0),
        (GONE, [], "failed", 1),
    ],
)
def test_the_end_follows_from_slurms_state_and_the_ranks_verdicts(slurm, verdicts, verdict, code):
    result = job_end.end_of("7", Job(slurm, code=1), state(*verdicts), "")
    assert (result.verdict, result.code) == (verdict, code)


@pytest.mark.parametrize("ended", [{"code": 143}, {"signal": 15}])
def test_a_stop_that_arrives_before_the_program_handles_signals_is_no_failure(ended):
    job = Job("FAILED", hosts=(N1,), **ended)
    assert job_end.end_of("7", job, state(began=False), "", stop_asked=True).verdict == "stopped"
    assert job_end.end_of("7", job, state(began=False), "").verdict == "failed", "nobody had asked"
    assert job_end.end_of("7", job, state("failed"), "", stop_asked=True).verdict == "failed"


def test_the_message_says_who_cancelled_a_job_and_whether_it_had_begun():
    job = Job("CANCELLED", hosts=(N1,))
    assert "not by this command" in job_end.end_of("7", job, state(), "").message
    assert "not by this command" not in job_end.end_of("7", job, state(), "", stop_asked=True).message
    assert "before it started" not in job_end.end_of("7", job, state(began=False), "").message
    assert "before it started" in job_end.end_of("7", Job("CANCELLED"), state(began=False), "").message


@pytest.mark.parametrize("seen", [state(), state("stopped", began=False)])
def test_a_job_that_ran_is_not_said_to_have_ended_before_it_began(seen):
    assert "before it started" not in job_end.end_of("7", Job("CANCELLED"), seen, "").message


def test_a_stop_that_was_not_requested_here_names_the_time_limit():
    job = Job("FAILED", code=75, limit="04:00:00")
    assert "04:00:00" in job_end.end_of("7", job, state("stopped"), "").message
    assert "04:00:00" not in job_end.end_of("7", job, state("stopped"), "", stop_asked=True).message
    for script in (True, False):  # it stopped at its --max-hours
        assert job_end.end_of("7", job, state("stopped", asked=False, script=script), "").message == "it stopped"


def test_the_jobs_last_output_is_shown_without_control_characters():
    message = job_end.end_of(
        "7", Job("FAILED", code=127), state(), "srun: error\n\x1b]0;x\x07muster: not found\n"
    ).message
    assert "muster: not found" in message
    assert "\x1b" not in message


def test_a_job_that_may_be_requeued_is_not_over_immediately():
    assert not job_end.is_over(Job("PREEMPTED"), 3)
    assert not job_end.is_over(Job("NODE_FAIL"), 3)
    assert not job_end.is_over(Job("RUNNING"), 1e9)
    assert not job_end.is_over(Job("PENDING", restarts=3), 1e9)
    assert all(job_end.is_over(Job(name), 60) for name in ENDED)


@pytest.mark.parametrize(
    "now", [Job("PENDING", restarts=1), Job("REQUEUED"), Job("RESV_DEL_HOLD"), Job("RUNNING", restarts=2)]
)
def test_a_job_that_waits_again_or_has_restarted_is_requeued(now):
    assert job_end.is_requeued(Job("RUNNING", restarts=1), now)


@pytest.mark.parametrize("now", [Job(AWAY), Job(GONE), Job("COMPLETED"), Job("RUNNING", restarts=1)])
def test_an_earlier_requeue_or_a_missing_restart_count_is_no_requeue(now):
    assert not job_end.is_requeued(Job("RUNNING", restarts=1), now)


def test_a_reason_is_in_plain_words_and_an_unknown_one_is_shown_unchanged():
    assert "higher priority" in words.waiting("7", Job("PENDING", "Priority"))
    assert "limit" in words.waiting("7", Job("PENDING", "QOSMaxJobsPerUserLimit"))
    assert "down, drained" in words.waiting("7", Job("PENDING", "ReqNodeNotAvail, UnavailableNodes:n7"))
    assert "NewInSlurm30" in words.waiting("7", Job("PENDING", "NewInSlurm30"))
    assert words.waiting("7", Job("PENDING")) == "job 7 waits in the queue"


@pytest.mark.parametrize(
    ("output", "hint"),
    [("slurmstepd: error: execve(): muster: No such file or directory", "--setup"), ("", "--shared")],
)
def test_for_a_job_that_started_nothing_the_hint_says_what_to_check(output, hint):
    assert hint in job_end.end_of("7", Job("FAILED", code=2), state(began=False), output).hint
