"""From which hosts `muster fetch` gets a run's files."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.core.results import Results
from deploy.hosts.look import fetch
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders, record

NO_ENGINE = "home /home/u\nengine-error Cannot connect to the Docker daemon\nrun r1\nrun .rehearsal-1\n"


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The `answers` of hosts to a look; `gathered`: the hosts whose files were fetched."""
    made = SimpleNamespace(answers={}, gathered=[], pages=[])

    def session(name):
        return SimpleNamespace(name=name, run=lambda command: SimpleNamespace(out=made.answers[name]))

    def opened(asked):
        return nullcontext(
            Results({host.name: session(host.name) if host.name in made.answers else FAULT for host in asked})
        )

    def gather(members, run, *_):
        made.gathered += [member.name for member in members]
        (tmp_path / "runs" / run / "work").mkdir(parents=True, exist_ok=True)
        return ()

    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(fetch, "open_all", opened)
    monkeypatch.setattr(fetch.gather, "gather", gather)
    monkeypatch.setattr(fetch.page, "write", lambda run_dir: made.pages.append(run_dir.name))
    return made


FAULT = DeployError("gpu-b: connection refused")


@pytest.mark.parametrize("run", ["r1", ""])
def test_files_are_fetched_from_a_host_whose_engine_does_not_answer(run, hosts):
    """Once, this was refused with `Cannot connect to the Docker daemon`, although only SSH is needed."""
    hosts.answers = {"gpu-a": NO_ENGINE, "gpu-b": "run r2\n" if run else ""}
    assert fetch.fetch(Options(hosts="gpu-a,gpu-b", run=run), Console()).name == "r1"
    assert hosts.gathered == ["gpu-a"]


def test_a_silent_host_is_named_after_the_others_files_were_fetched(hosts):
    hosts.answers = {"gpu-a": NO_ENGINE}
    with pytest.raises(DeployError, match="gpu-b: connection refused"):
        fetch.fetch(Options(hosts="gpu-a,gpu-b", run="r1"), Console())
    assert hosts.gathered == ["gpu-a"]


def recorded(folder, *runs):
    """The records of these runs in this folder, the newest last."""
    for number, run in enumerate(runs):
        (folder / run).mkdir(parents=True)
        start = {"start": 1, "t": 1000.0 + number}
        record.write_record(folder / run, {"id": run, "backend": record.HOSTS, "nodes": ["gpu-a"], "starts": [start]})


@pytest.mark.parametrize(("run", "fetched"), [("", "r2"), ("r1", "r1"), ("r3", "r3")])
def test_the_named_run_is_fetched_or_else_the_newest_of_this_folder(run, fetched, hosts, tmp_path, capsys):
    """The hosts also have runs that were deployed from other folders."""
    recorded(tmp_path / "runs", "r1", "r2")
    hosts.answers = {"gpu-a": "run r1\nrun r2\nrun r3\n"}
    assert fetch.fetch(Options(hosts="gpu-a", run=run), Console()).name == fetched
    assert hosts.pages == [fetched], "the run has a page here"
    said = capsys.readouterr().err
    assert ("r2 is the newest run of this folder; --run ID fetches another one" in said) == (not run)
    assert "the script's files are in" in said


def test_several_runs_of_other_folders_are_listed_and_none_is_fetched(hosts):
    hosts.answers = {"gpu-a": "run r1\n", "gpu-b": "run r2\n"}
    with pytest.raises(UsageError, match=r"which run\?: they have r1, r2"):
        fetch.fetch(Options(hosts="gpu-a,gpu-b"), Console())
    assert (hosts.gathered, hosts.pages) == ([], [])


@pytest.mark.parametrize("run", ["r9", ""])
def test_a_run_that_a_silent_host_may_have_is_not_called_absent(run, hosts):
    hosts.answers = {"gpu-a": "run r1\n"}
    with pytest.raises(DeployError, match="gpu-b: connection refused"):
        fetch.fetch(Options(hosts="gpu-a,gpu-b", run=run), Console())
    assert hosts.gathered == []
