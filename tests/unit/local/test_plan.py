"""The choice of backend and port, with reasons, and what is refused."""

from __future__ import annotations

import pytest

from deploy.core.errors import FAILED, USAGE, DeployError
from deploy.core.facts import EngineFacts, MachineFacts
from deploy.job.load import value_of
from deploy.job.options import Options
from deploy.local import preflight, up
from deploy.local.backends import BACKENDS
from deploy.local.plan import PORTS_TO_TRY, check_processes, choose_backend, choose_port
from deploy.preflight import PreflightRequest

DOCKER = EngineFacts(answers=True, version="28.2.2")
NONE = EngineFacts(answers=False, reason="no Docker engine answers")


@pytest.mark.parametrize(
    ("asked", "engine", "name", "why"),
    [
        ("auto", DOCKER, "docker", "Docker 28.2.2"),
        ("auto", NONE, "processes", "local processes (no Docker engine answers)"),
        ("processes", DOCKER, "processes", "local processes"),
        ("docker", DOCKER, "docker", "Docker 28.2.2"),
    ],
)
def test_the_backend_is_the_one_asked_for_or_the_one_available(
    asked: str, engine: EngineFacts, name: str, why: str
) -> None:
    choice = choose_backend(asked, engine, BACKENDS)
    assert (choice.name, choice.why) == (name, why)


@pytest.mark.parametrize("asked", ["", "processes"])
def test_a_script_on_gpus_is_told_how_many_its_nodes_share_also_if_a_record_names_the_backend(asked: str) -> None:
    assert choose_backend(asked, NONE, BACKENDS, gpus=5, nodes=2).why == "local processes, 4 of 5 GPUs"


def test_docker_without_an_engine_fails_with_an_alternative() -> None:
    with pytest.raises(DeployError, match="no Docker engine answers") as caught:
        choose_backend("docker", NONE, BACKENDS)
    assert caught.value.code == FAILED
    assert "--backend processes" in caught.value.hint


@pytest.mark.parametrize("nonsense", ["foo", "Docker", " "])
def test_an_unknown_backend_is_wrong_usage(nonsense: str) -> None:
    with pytest.raises(DeployError, match="--backend ") as caught:
        choose_backend(nonsense, DOCKER, BACKENDS)
    assert caught.value.code == USAGE


@pytest.mark.parametrize("nonsense", ["-1", "two", "1.5", "²", "9999999", " 2"])
def test_workers_must_be_a_number_a_machine_can_hold(nonsense: str) -> None:
    with pytest.raises(DeployError, match="--workers ") as caught:
        value_of(Options(workers=nonsense), "workers")
    assert caught.value.code == USAGE


def test_zero_workers_means_a_run_with_only_the_master() -> None:
    assert value_of(Options(workers="0"), "workers") == 0


def test_a_free_port_is_chosen_and_a_busy_one_skipped() -> None:
    assert choose_port(29500, {1, 2}) == 29500
    assert choose_port(29500, {29500, 29501}) == 29502


def test_no_free_port_is_an_error_with_a_hint() -> None:
    with pytest.raises(DeployError, match="all in use") as caught:
        choose_port(29500, range(29500, 29500 + PORTS_TO_TRY))
    assert caught.value.hint


def test_local_processes_need_torch() -> None:
    check_processes(MachineFacts(2, "Linux", torch=True, python="/p"))
    with pytest.raises(DeployError, match="/p cannot import torch"):
        check_processes(MachineFacts(2, "Linux", torch=False, python="/p"))
    with pytest.raises(DeployError) as caught:
        check_processes(MachineFacts(2, "Linux", torch=False, python="/p"), script=True)
    assert "/p -m pip install torch" in caught.value.hint


def test_a_local_preflight_checks_the_backend_that_up_would_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """Outside a checkout, an engine that answers has no image: earlier, the preflight looked for containers there."""

    class Looked(Exception): ...

    def processes(names: object, port: object) -> None:
        raise Looked

    monkeypatch.setattr(up.client, "find_engine", lambda: DOCKER)
    monkeypatch.setattr(up.backends, "has_build", lambda folder: False)
    monkeypatch.setattr(preflight, "_processes", processes)
    with pytest.raises(Looked):
        preflight.preflight(None, "auto", PreflightRequest(), False, lambda phase: None)
