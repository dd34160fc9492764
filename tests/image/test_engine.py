"""Docker calls against this machine's engine: a run's whole life, and what an absent engine looks like."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from pathlib import Path

import pytest

from deploy.core.errors import DeployError, EngineLost
from deploy.engine import client, reach
from lab.waiting import until

HOME = Path(__file__).resolve().parents[2]
FILES = (HOME / "docker-compose.yml",)


@pytest.fixture
def silent_engine(tmp_path, monkeypatch):
    """A socket that accepts connections and never answers, like a hung engine."""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "docker.sock"))
        listener.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/docker.sock")
        yield


def start(run_id, arguments, files=FILES, workers=2):
    folder = HOME / "runs" / run_id
    environment = {"MUSTER_ARGS": arguments, "MUSTER_UID": str(os.getuid()), "MUSTER_GID": str(os.getgid())}
    client.up(run_id, environment, workers, files)
    return folder


@pytest.fixture
def run_folder(run_id):
    """The run's folder below runs/, as the control side would have made it."""
    folder = HOME / "runs" / run_id
    folder.mkdir(parents=True)
    yield folder
    client.down(run_id)
    subprocess.run(["rm", "-rf", str(folder)], check=True)


def test_this_engine_is_found(docker):
    assert docker.version[0].isdigit()
    assert docker.reason == ""


def test_a_hanging_engine_is_noticed_in_time(silent_engine):
    begun = time.monotonic()
    facts = client.find_engine()
    assert time.monotonic() - begun < 3.0
    assert not facts.answers
    assert "did not answer" in facts.reason or "not installed" in facts.reason


def test_a_lost_engine_raises_its_own_error(docker, tmp_path, monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nothing.sock")
    assert client.find_engine().reason == f"no Docker engine answers at DOCKER_HOST=unix://{tmp_path}/nothing.sock"
    with pytest.raises(EngineLost):
        client.states("any")
    with pytest.raises(EngineLost):
        client.up("any", {}, 1, FILES)


def test_a_missing_docker_context_is_named_and_no_other_engine_is_asked(docker, monkeypatch):
    monkeypatch.setenv("DOCKER_CONTEXT", "nope")
    monkeypatch.setattr(reach, "_place_of_context", reach._place_of_context.__wrapped__)  # Muster asks once per process
    assert client.find_engine().reason == "no Docker engine answers at DOCKER_CONTEXT=nope"


def test_an_empty_docker_host_variable_counts_as_unset(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "")
    monkeypatch.setenv("DOCKER_CONTEXT", "")
    assert reach._why_silent(ConnectionRefusedError(), 1.0) == "no Docker engine answers"


def test_image_exists_tells_whether_an_image_exists(image):
    assert client.image_exists(image)
    assert reach.on_this_machine().image(image)["Id"].startswith("sha256:")
    assert not client.image_exists("muster-trainer:none-of-that-name")


def test_a_missing_image_is_named_with_the_next_command(docker, run_id, tmp_path):
    other = tmp_path / "other.yml"
    other.write_text("services: {master: {image: 'muster-trainer:none-of-that-name'}}")
    with pytest.raises(DeployError) as fault:
        client.up(run_id, {}, 0, (*FILES, other))
    assert "muster-trainer:none-of-that-name" in fault.value.message
    assert fault.value.hint == "build it: make image"


def trains_again(events):
    """Whether the rank has started twice and is in its training loop; stopped earlier, it would write no checkpoint."""
    _, *lives = events.read_text().split('"started"')[1:]
    return bool(lives) and '"plan"' in lives[-1]


def test_a_run_recovers_from_a_lost_node_and_stops_with_a_checkpoint(image, run_id, run_folder):
    start(run_id, "--recipe digits --steps 1000000")
    assert [state.node for state in client.states(run_id)] == ["master", "worker-1", "worker-2"]
    assert {state.seen.status for state in client.states(run_id)} == {"running"}
    until(lambda: len(list(run_folder.glob("ranks/rank-*.jsonl"))) == 3, "three ranks")

    # The restart policy restarts a lost node, and its state shows that. Process 1 cannot be killed from inside.
    worker = next(state for state in client.states(run_id) if state.node == "worker-2")
    subprocess.run(["docker", "exec", worker.seen.id, "sh", "-c", "kill -9 -1"], capture_output=True, check=False)
    until(lambda: {state.node: state.seen.restarts for state in client.states(run_id)}["worker-2"] == 1, "a restart")
    until(lambda: trains_again(run_folder / "ranks/rank-0.jsonl"), "ranks to train again")

    client.stop(run_id, grace_s=30)
    ended = {state.node: state for state in client.states(run_id)}
    assert {state.as_node().state for state in ended.values()} == {"exited"}
    assert {state.seen.code for state in ended.values()} == {75}, "stopped with a checkpoint, and not started again"
    assert list(run_folder.glob("checkpoints/step-*/manifest.json"))

    assert b"digits" in b"".join(client.logs(run_id, "master"))
    with pytest.raises(DeployError, match="worker-9"):
        list(client.logs(run_id, "worker-9"))


def test_cleaning_is_by_label_and_touches_nothing_else(image, run_id):
    name, another = f"{run_id}-bystander", f"another-{run_id}"
    bystander = [
        "docker",
        "run",
        "--detach",
        "--name",
        name,
        "--label",
        f"muster.run={another}",
        "--entrypoint",
        "sleep",
    ]
    subprocess.run([*bystander, image, "600"], check=True, capture_output=True)
    try:
        start(run_id, "--recipe digits --steps 1000000", workers=1)
        assert {run_id, another} <= client.run_ids()
        assert client.down(run_id) == 3, "two containers and a network"
        assert client.states(run_id) == []
        assert run_id not in client.run_ids()
        assert another in client.run_ids()
    finally:
        client.down(another)
    assert another not in client.run_ids()
