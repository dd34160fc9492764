"""`muster stop` on Slurm: how long it waits for the job's end before it reports that the job still runs."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.host.jobs import Job
from deploy.report.console import Console
from deploy.run.files import folders, record
from deploy.slurm import plan, recorded_run, runs


@pytest.mark.parametrize(("again", "seconds"), [("", 120), ("--grace 5m", 420), ("--grace=5m", 420)])
def test_a_stop_waits_for_the_grace_period_and_two_minutes(again, seconds, tmp_path, monkeypatch):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "long").mkdir()
    (host,) = recorded_run.hosts_of_flag("login")
    request = plan.JobRequest(plan.Options(slurm="login"), 1, (), again=f"deploy --slurm login {again}", script=True)
    recorded_run.open_start(tmp_path / "long", request, host, "/home/me")
    recorded_run.update_record(tmp_path / "long", job="7")
    clock = [0.0]
    monkeypatch.setattr(
        runs, "time", SimpleNamespace(monotonic=lambda: clock[0], sleep=lambda s: clock.__setitem__(0, clock[0] + s))
    )
    login = SimpleNamespace(job=lambda run, number: Job("RUNNING"), stop=lambda run, number, now: None)
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    with pytest.raises(DeployError, match="job 7 is still RUNNING"):
        runs.stop(recorded_run.find("long"), now=False, console=Console())
    assert clock[0] == pytest.approx(seconds, abs=2)


def test_a_stop_writes_the_page_and_says_how_to_continue_as_a_follower_does(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(folders, "RUNS", tmp_path)
    (tmp_path / "long").mkdir()
    (host,) = recorded_run.hosts_of_flag("login")
    recorded_run.open_start(tmp_path / "long", plan.JobRequest(plan.Options(slurm="login"), 1, ()), host, "/home/me")
    recorded_run.update_record(tmp_path / "long", job="7")
    login = SimpleNamespace(
        host=host, job=lambda *_: Job("CANCELLED", hosts=("n1",)), reading_session=None, state=lambda *_: ("", "", "")
    )
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    monkeypatch.setattr(runs.job_end, "is_over", lambda *_: True)
    monkeypatch.setattr(runs.follow.last_words, "of_run", lambda *_: [])
    assert runs.stop(recorded_run.find("long"), now=False, console=Console()) == 0
    hint = "continue with the files that it wrote: muster deploy --slurm login --resume long"
    assert hint in " ".join(capsys.readouterr().err.split())
    assert record.read_json(tmp_path / "long/outcome.json")["hint"] == hint
    assert "stopped" in (tmp_path / "long/report.html").read_text()
