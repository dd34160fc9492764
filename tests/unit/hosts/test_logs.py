"""When `muster logs --follow` ends."""

import threading
from types import SimpleNamespace

import pytest

from deploy.causes import docker_faults
from deploy.engine import reach
from deploy.hosts.look import logs
from deploy.hosts.look.merge import Merge
from deploy.job.options import Options


@pytest.fixture
def reader(monkeypatch):
    """A reader of a console that ends at once; `engine`: what its host's engine says then of the container."""
    monkeypatch.setattr(logs, "_AGAIN_S", 0.01)
    done = SimpleNamespace(code=0, out="", err="")
    session = SimpleNamespace(name="a", host=SimpleNamespace(name="a"), run=lambda *_, **__: done)

    def read(engine):
        monkeypatch.setattr(reach, "on_host", lambda session: SimpleNamespace(inspect=lambda name: engine()))
        made = logs.Reader(session, "muster-r1", Options(follow=True))
        made.read(Merge([made.source], 1.0), lambda asking: False, pytest.fail, threading.Event())
        return made.fault

    return read


def test_it_ends_without_a_word_once_the_container_is_gone(reader):
    assert reader(lambda: None) is None


def test_an_engine_that_does_not_answer_is_a_fault_and_no_end_of_the_run(reader):
    """A daemon that restarts under living containers ended it with code 0, as if the run were over."""

    def silent():
        raise docker_faults.unanswered("Cannot connect to the Docker daemon")

    assert "does not answer" in reader(silent).message
