"""`muster status` and `muster logs` of a run on Slurm: where its job is, and whose output is read."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import UsageError
from deploy.host.jobs import AWAY, GONE, NO_FOLDER, Job
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.slurm import known, runs


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
    (host,) = known.hosts_of_flag("login")
    run = known.Known(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")
    reading = SimpleNamespace(home="/home/me/.muster", run=lambda *_, **__: SimpleNamespace(out=""))
    login = SimpleNamespace(job=lambda run, number: Job(state), reading=reading)
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(login))
    assert runs.status(run, Console()) == 0
    assert capsys.readouterr().out.strip() == f"long  {words}"


@pytest.mark.parametrize(("rank", "name"), [("", "job.out"), ("all", "job.out"), ("3", "logs/rank-3.log")])
def test_logs_are_of_one_rank_or_of_all(rank, name, tmp_path, monkeypatch):
    (host,) = known.hosts_of_flag("login")
    run = known.Known(tmp_path / "long", host, "/home/me", "7", True, ("train.py",), 0.0, "")
    asked = []
    reading = SimpleNamespace(receive=lambda command, take: asked.append(command) or SimpleNamespace(code=0))
    monkeypatch.setattr(runs, "Login", lambda *_: nullcontext(SimpleNamespace(reading=reading)))
    assert runs.logs(run, Options(rank=rank), Console()) == 0
    assert name in asked[0]
    with pytest.raises(UsageError, match="--rank 0,1: not for a run on Slurm"):
        runs.logs(run, Options(rank="0,1"), Console())
