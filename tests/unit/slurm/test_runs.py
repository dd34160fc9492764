"""`muster status` and `muster logs` of a run on Slurm: where its job is, and whose output is read."""

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
        (AWAY, "job 7 may go on: Slurm's controller does not answer"),
        (GONE, "job 7 is over, and Slurm has forgotten it"),
        (NO_FOLDER, "job 7 has no folder any more"),
        ("COMPLETED", "job 7 completed"),
    ],
)
def test_what_slurm_does_not_say_is_told_in_words(state, words, tmp_path, monkeypatch, capsys):
    (host,) = recorded_run.hosts_of_flag("login")
    run = recorded_run.RecordedRun(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")
    reading = SimpleNamespace(home="/home/me/.muster", run=lambda *_, **__: SimpleNamespace(out=""))
    login = SimpleNamespace(job=lambda run, number: Job(state), reading_session=reading)
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    assert runs.status(run, Console()) == 0
    assert capsys.readouterr().out.strip() == f"long  {words}"


def test_the_step_is_that_of_the_ranks_of_this_start(tmp_path, monkeypatch, capsys):
    """A rank that an earlier start alone had stood there, at its last step, for as long as the run went on."""
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
def test_logs_are_of_one_rank_or_of_all(rank, name, tmp_path, monkeypatch):
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
    """`muster logs` where the login node sends these lines and ends so; returns its exit code."""
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


def test_a_progress_bar_is_shown_as_it_stands(logs, capsys):
    """It came as one line of all its states; 32 MB of them took a minute, and four times as many sixteen."""
    assert logs("1%\r2%\r3%", "\x1b[31mred\x1b[0m") == 0
    assert capsys.readouterr().out == "3%\nred\n"


def test_with_json_each_line_is_an_object(logs, capsys):
    assert logs("a", "b", as_json=True, rank="3") == 0
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert rows == [{"rank": 3, "line": "a"}, {"rank": 3, "line": "b"}]


def test_what_keeps_the_log_from_being_read_is_said(logs, capsys):
    """A pattern that grep refuses was told as a log that is not there yet."""
    with pytest.raises(DeployError, match="Unmatched"):
        logs(code=2, err="grep: Unmatched ( or \\(", grep="(")
    with pytest.raises(DeployError, match=r"no job\.out there yet"):
        logs(code=1)
    assert logs(grep="nan") == 0
    assert "no line matches nan" in capsys.readouterr().err


def test_a_log_that_breaks_off_is_told_as_such(logs, capsys):
    """Under its lines stood that there is none yet."""
    with pytest.raises(DeployError, match=r"long: job\.out ended with code 1: no message"):
        logs("one", code=1)
    assert capsys.readouterr().out == "one\n"
