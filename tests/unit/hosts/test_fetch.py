"""From which hosts `muster fetch` gets a run's files."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.results import Results
from deploy.hosts.look import fetch
from deploy.job.options import Options
from deploy.report.console import Console
from deploy.run.files import folders

NO_ENGINE = "home /home/u\nengine-error Cannot connect to the Docker daemon\nrun r1\nrun .rehearsal-1\n"


@pytest.fixture
def hosts(tmp_path, monkeypatch):
    """The `answers` of hosts to a look; `gathered`: the hosts whose files were fetched."""
    made = SimpleNamespace(answers={}, gathered=[])

    def session(name):
        return SimpleNamespace(name=name, run=lambda command: SimpleNamespace(out=made.answers[name]))

    def opened(asked):
        return nullcontext(
            Results({host.name: session(host.name) if host.name in made.answers else FAULT for host in asked})
        )

    def gather(members, run, *_):
        made.gathered += [member.name for member in members]
        (tmp_path / "runs" / run).mkdir(parents=True)
        return ()

    monkeypatch.setattr(folders, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(fetch, "open_all", opened)
    monkeypatch.setattr(fetch.gather, "gather", gather)
    monkeypatch.setattr(fetch.page, "write", lambda run_dir: None)
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
