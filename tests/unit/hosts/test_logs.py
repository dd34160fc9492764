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
    """reader(engine): the fault after a console that ends immediately; `engine()`: the engine's container lookup."""
    monkeypatch.setattr(logs, "_AGAIN_S", 0.01)
    done = SimpleNamespace(code=0, out="", err="")
    session = SimpleNamespace(name="a", host=SimpleNamespace(name="a"), run=lambda *_, **__: done)

    def read(engine):
        monkeypatch.setattr(reach, "on_host", lambda session: SimpleNamespace(inspect=lambda name: engine()))
        made = logs.Reader(session, "muster-r1", Options(follow=True))
        made.read(Merge([made.source], 1.0), lambda asking: False, pytest.fail, threading.Event())
        return made.fault

    return read


def test_following_ends_silently_once_the_container_is_gone(reader):
    assert reader(lambda: None) is None


def test_an_engine_that_does_not_answer_is_a_fault_and_not_the_end_of_the_run(reader):
    """Once, a daemon restart under live containers ended the command with code 0, as if the run were over."""

    def silent():
        raise docker_faults.unanswered("Cannot connect to the Docker daemon")

    assert "does not answer" in reader(silent).message
