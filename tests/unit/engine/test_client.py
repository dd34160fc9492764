"""Whether this machine has an engine that nodes can run on; a program that takes too long is not a missing one."""

from types import SimpleNamespace

import pytest

from deploy.core.errors import DeployError
from deploy.core.facts import EngineFacts
from deploy.engine import client, reach
from deploy.local import attach, gpus, script


@pytest.mark.parametrize(
    ("compose", "usable"), [("", False), ("1.29.2", False), ("2.27.1+ds1", True), ("v5.0.0", True), ("6.1.0", True)]
)
def test_every_compose_version_from_2_on_is_usable(monkeypatch, compose, usable):
    monkeypatch.setattr(client.shutil, "which", lambda name: "/usr/bin/docker")
    monkeypatch.setattr(client, "Engine", lambda reach: SimpleNamespace(version=lambda seconds: "29.1.0"))
    monkeypatch.setattr(client.subprocess, "run", lambda *_, **__: SimpleNamespace(stdout=f"{compose}\n"))
    assert client.find_engine().answers is usable


@pytest.fixture
def slow(tmp_path, monkeypatch):
    """Make a program of this name that never answers; returns its path."""
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")

    def make(name):
        program = tmp_path / name
        program.write_text("#!/bin/sh\nexec sleep 60\n")
        program.chmod(0o755)
        return program

    return make


def test_a_slow_compose_is_not_a_missing_one_and_runs_of_that_engine_are_still_known(slow, monkeypatch):
    slow("docker")
    monkeypatch.setattr(client, "_COMPOSE_S", 0.2)
    monkeypatch.setattr(client, "Engine", lambda reach: SimpleNamespace(version=lambda seconds: "29.1.0"))
    facts = client.find_engine()
    assert facts == EngineFacts(False, "29.1.0", "docker compose did not answer within 0.2 s")


def test_a_slow_context_leads_to_no_other_engine(slow, monkeypatch):
    """The usual address may be another user's engine, or root's, when the context names a rootless one."""
    slow("docker")
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(reach, "LOOK_S", 0.2)
    monkeypatch.setattr(reach, "_place_of_context", reach._place_of_context.__wrapped__)  # Muster asks once per process
    with pytest.raises(TimeoutError):
        reach.Here(0.2).connect()
    facts = client.find_engine()
    assert (facts.answers, facts.version, facts.silent) == (False, "", True)
    assert "did not answer" in facts.reason
    with pytest.raises(DeployError, match="could not tell which containers run: the Docker engine did not answer"):
        attach.refuse_silent(facts)


def test_a_python_that_does_not_answer_is_not_one_without_torch(slow, monkeypatch):
    monkeypatch.setattr(script, "_LOOK_S", 0.2)
    assert script.has_torch(str(slow("python")))
    assert not script.has_torch("/none/python")


def test_a_machine_whose_gpus_are_unknown_trains_on_the_cpu_only_if_asked(slow, monkeypatch):
    slow("nvidia-smi")
    monkeypatch.setattr(gpus, "_LOOK_S", 0.2)
    monkeypatch.setattr(gpus, "_DEVICES", ("/dev/null",))
    with pytest.raises(DeployError, match="this machine: could not tell which GPUs it has: looking for GPUs failed"):
        gpus.count_gpus("auto", None)
    assert gpus.count_gpus(0, None) == 0
