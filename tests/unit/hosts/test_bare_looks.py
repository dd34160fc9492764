"""Which hosts are bare, and who may bring them the program that runs their nodes as processes."""

from types import SimpleNamespace

import pytest

from deploy.core.results import HostsFailed
from deploy.engine import bringing
from deploy.hosts.start import observe

NO_ENGINE = "no-engine\nengine-error docker: not found in PATH (/usr/bin)\n"
DOWN = (
    "engine-error Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?\n"
)


@pytest.fixture
def brought(monkeypatch):
    """The hosts to which the program was brought."""
    names = []
    monkeypatch.setattr(bringing, "bring", lambda session: names.append(session.host.name))
    return names


def hosts(**answers):
    return [
        SimpleNamespace(
            host=SimpleNamespace(name=name, gpus="auto"), run=lambda words, out=out: SimpleNamespace(out=out)
        )
        for name, out in answers.items()
    ]


def test_a_dry_run_brings_nothing_and_says_what_does(brought):
    with pytest.raises(HostsFailed, match="a dry run brings nothing") as failed:
        observe.facts(hosts(a=NO_ENGINE), bring=True, may_write=False).all()
    assert "muster preflight --hosts a" in failed.value.hint
    assert brought == []


def test_a_host_without_an_engine_beside_one_that_has_it_gets_nothing(brought):
    faults = observe.facts(hosts(a=NO_ENGINE, b=DOWN), bring=True).faults
    assert faults["a"].cause.name == "docker-missing"
    assert faults["b"].cause.name == "docker-down"
    assert brought == []


def test_where_no_host_has_one_each_gets_the_program(brought):
    observe.facts(hosts(a=NO_ENGINE, b=NO_ENGINE), bring=True)
    assert sorted(brought) == ["a", "b"]
