"""`muster status` and `muster logs` for a run on Slurm: the state of its job, and whose output is read."""

import json
import time
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.host.jobs import AWAY, GONE, NO_FOLDER, Job
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.slurm import recorded_run, runs


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (AWAY, "job 7 may still be running: Slurm's controller does not answer"),
        (GONE, "job 7 has ended, and Slurm has forgotten it"),
        (NO_FOLDER, "job 7 no longer has a folder"),
        ("COMPLETED", "job 7 completed"),
    ],
)
def test_a_job_that_slurm_does_not_know_is_described_in_words(state, words, tmp_path, monkeypatch, capsys):
    (host,) = recorded_run.hosts_of_flag("login")
    run = recorded_run.RecordedRun(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")
    reading = SimpleNamespace(home="/home/me/.muster", run=lambda *_, **__: SimpleNamespace(out=""))
    login = SimpleNamespace(job=lambda run, number: Job(state), reading_session=reading)
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    assert runs.status(run, Console()) == 0
    assert capsys.readouterr().out.strip() == f"long  {words}"


def test_the_step_comes_from_the_ranks_of_this_start(tmp_path, monkeypatch, capsys):
    """Earlier, the last step of a rank that only an earlier start had was shown for the rest of the run."""
    (host,) = recorded_run.hosts_of_flag("login")
    run, now = (
        recorded_run.RecordedRun(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, ""),
        time.time(),
    )
    rows = [{"kind": "step", "rank": 7, "t": now - 9000, "step": 3}, {"kind": "step", "rank": 0, "t": now, "step": 90}]
    monkeypatch.setattr(runs.last_words, "of_run", lambda *_, **__: rows)
    login = SimpleNamespace(job=lambda run, number: Job("RUNNING", ran_s=600.0), reading_session=None)
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    assert runs.status(run, Console()) == 0
    assert capsys.readouterr().out.strip() == "long  job 7 running, step 90"


@pytest.mark.parametrize(("rank", "name"), [("", "job.out"), ("all", "job.out"), ("3", "logs/rank-3.log")])
def test_logs_show_one_rank_or_all(rank, name, tmp_path, monkeypatch):
    (host,) = recorded_run.hosts_of_flag("login")
    run = recorded_run.RecordedRun(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")
    asked = []
    reading = SimpleNamespace(run=lambda command, **_: asked.append(command) or SimpleNamespace(code=0))
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(SimpleNamespace(reading_session=reading)))
    assert runs.logs(run, Options(rank=rank), Console()) == 0
    assert name in asked[0]
    for several in ("0,1", "0-1"):
        with pytest.raises(UsageError, match=f"--rank {several}: not for a run on Slurm"):
            runs.logs(run, Options(rank=several), Console())


@pytest.fixture
def logs(tmp_path, monkeypatch):
    """Returns a function: run `muster logs` while the login node sends these lines and ends so; it returns the code."""
    (host,) = recorded_run.hosts_of_flag("login")
    run = recorded_run.RecordedRun(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")

    def read(*lines, code=0, err="", as_json=False, **options):
        def answer(command, on_line, **_):
            for line in lines:
                on_line(line)
            return SimpleNamespace(code=code, err=err)

        monkeypatch.setattr(
            runs, "Login", lambda *_: nullcontext(SimpleNamespace(reading_session=SimpleNamespace(run=answer)))
        )
        return runs.logs(run, Options(**options), Console(as_json=as_json))

    return read


def test_a_progress_bar_is_shown_in_its_last_state(logs, capsys):
    """Earlier, all states came as one line: 32 MB of them took a minute, and four times as much took sixteen."""
    assert logs("1%\r2%\r3%", "\x1b[31mred\x1b[0m") == 0
    assert capsys.readouterr().out == "3%\nred\n"


def test_with_json_each_line_is_an_object(logs, capsys):
    assert logs("a", "b", as_json=True, rank="3") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"rank": 3, "line": "a"}, {"rank": 3, "line": "b"}]


def test_the_reason_why_the_log_cannot_be_read_is_reported(logs, capsys):
    """Earlier, a pattern that grep refuses was reported as a log that is not there yet."""
    with pytest.raises(DeployError, match="Unmatched"):
        logs(code=2, err="grep: Unmatched ( or \\(", grep="(")
    with pytest.raises(DeployError, match=r"no job\.out there yet"):
        logs(code=1)
    assert logs(grep="nan") == 0
    assert "no line matches nan" in capsys.readouterr().err


def test_a_log_that_breaks_off_is_reported_as_such(logs, capsys):
    """Earlier, its lines were followed by the message that there is no log yet."""
    with pytest.raises(DeployError, match=r"long: job\.out ended with code 1: no message"):
        logs("one", code=1)
    assert capsys.readouterr().out == "one\n"
