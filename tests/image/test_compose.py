"""The compose files: their settings, and that plain `docker compose up` trains to the end."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from lab.waiting import until

GPU = ("docker-compose.yml", "docker-compose.gpu.yml")


@pytest.fixture
def settings(compose):
    """The services as compose resolves them with these environment variables."""

    def services(files=("docker-compose.yml",), **environment):
        return json.loads(compose("config", "--format", "json", files=files, **environment))

    return services


@pytest.mark.parametrize("node", ["master", "worker"])
def test_every_node_has_the_rendezvous_settings(settings, node):
    environment = settings()["services"][node]["environment"]
    assert environment["PET_RDZV_BACKEND"] == "c10d"
    assert environment["PET_RDZV_ENDPOINT"] == "master:29500"
    assert environment["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"] == "1"
    assert (environment["GLOO_SOCKET_IFNAME"], environment["NCCL_SOCKET_IFNAME"]) == ("eth0", "=eth0")
    conf = dict(pair.split("=") for pair in environment["PET_RDZV_CONF"].split(","))
    assert conf["is_host"] == ("1" if node == "master" else "0")
    assert int(conf["keep_alive_max_attempt"]) >= 3, "with fewer, torch splits a run in two that train on alone"


@pytest.mark.parametrize("node", ["master", "worker"])
def test_every_node_is_confined_and_has_its_limits_set(settings, node):
    service = settings()["services"][node]
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    assert service["user"] == "1000:1000"
    assert not service.get("privileged")
    assert service["restart"] == "on-failure:3"
    assert service["healthcheck"]["test"] == ["CMD", "python", "-P", "-m", "muster.trainer.node", "health"]
    assert int(service["shm_size"]) >= 1 << 30
    assert service["ulimits"]["nofile"] >= 16384
    assert service["logging"]["options"]["max-size"]
    grace = float(service["stop_grace_period"].removesuffix("s"))
    assert grace > float(service["environment"]["PET_SHUTDOWN_TIMEOUT"]), "ranks must be able to write a checkpoint"


def test_everything_has_the_runs_id(settings):
    resolved = settings(MUSTER_RUN_ID="r7")
    assert {service["labels"]["muster.run"] for service in resolved["services"].values()} == {"r7"}
    assert resolved["networks"]["default"]["labels"]["muster.run"] == "r7"
    environment = resolved["services"]["worker"]["environment"]
    assert (environment["MUSTER_RUN_ID"], environment["MUSTER_RUN_DIR"]) == ("r7", "/muster/runs/r7")
    assert environment["PET_RDZV_ID"] == "r7"


def test_a_run_sees_only_its_own_folder(settings):
    own = {"MUSTER_MOUNT": "/somewhere/runs/r7", "MUSTER_MOUNT_AT": "/muster/runs/r7"}
    for service in settings(MUSTER_RUN_ID="r7", **own)["services"].values():
        (mount,) = service["volumes"]
        assert (mount["source"], mount["target"]) == (own["MUSTER_MOUNT"], own["MUSTER_MOUNT_AT"])


def test_arguments_are_split_as_a_shell_does(settings):
    resolved = settings(
        MUSTER_ARGS="--recipe 'my recipe.py' --steps \"5\"", WORKERS="4", MUSTER_UID="7", MUSTER_GID="8"
    )
    worker = resolved["services"]["worker"]
    assert worker["command"] == ["--recipe", "my recipe.py", "--steps", "5"]
    assert worker["user"] == "7:8"
    assert (worker["deploy"]["replicas"], worker["environment"]["WORKERS"]) == (4, "4")


def test_the_gpu_overlay_gives_one_node_every_gpu(settings):
    services = settings(files=GPU)["services"]
    for node in ("master", "worker"):
        assert services[node]["image"] == "muster-trainer:gpu"
        assert services[node]["build"]["args"] == {"FLAVOUR": "gpu"}
        assert services[node]["environment"]["PET_NPROC_PER_NODE"] == "auto"
        (device,) = services[node]["deploy"]["resources"]["reservations"]["devices"]
        assert (device["driver"], device["capabilities"], device["count"]) == (
            "nvidia",
            ["gpu", "compute", "utility"],
            -1,
        )
    assert services["worker"]["deploy"]["replicas"] == 0, "NCCL refuses two ranks on one GPU"
    assert services["master"]["environment"]["PET_RDZV_CONF"].startswith("is_host=1")


def events(folder: Path) -> dict[str, list[dict]]:
    """Events of all ranks, by node."""
    by_node: dict[str, list[dict]] = {}
    for path in folder.glob("ranks/rank-*.jsonl"):
        for line in path.read_text().splitlines():
            by_node.setdefault(json.loads(line)["node"], []).append(json.loads(line))
    return by_node


def test_plain_up_trains_to_the_end(image, compose, run_id, tmp_path):
    # As in a checkout that root made: the nodes' user cannot write to runs/ until compose has changed its owner.
    (tmp_path / "runs").chmod(0o755)
    os.chown(tmp_path / "runs", 0, 0)
    compose("up", "--no-color", MUSTER_ARGS="--recipe digits --steps 60")
    listed = compose("ps", "--all", "--format", "{{.Name}} {{.Status}}")
    ended = dict(line.split(" ", 1) for line in listed.splitlines())
    assert {name.removeprefix(f"{run_id}-") for name in ended} == {"master-1", "worker-1", "worker-2", "folder-1"}
    assert all(status.startswith("Exited (0)") for status in ended.values()), ended

    (folder,) = (path for path in (tmp_path / "runs").iterdir() if (path / "metrics.jsonl").exists())
    by_node = events(folder)
    assert set(by_node) == {"master", "worker-1", "worker-2"}
    assert {event["rank"] for event in by_node["master"]} == {0}, "rank 0 is on the master node"
    assert {node: own[-1]["verdict"] for node, own in by_node.items()} == dict.fromkeys(by_node, "done")
    assert {event["world"] for own in by_node.values() for event in own if event["kind"] == "started"} == {3}
    steps = [json.loads(line)["step"] for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert max(steps) == 60


def test_a_refusal_is_printed_once_and_is_final(image, compose, run_id):
    compose("up", "--detach", "--no-deps", "master", WORKERS="0", MUSTER_ARGS="--steps nonsense")
    name = f"{run_id}-master-1"

    def ended():
        shown = subprocess.run(["docker", "inspect", name], capture_output=True, text=True, check=True).stdout
        container = json.loads(shown)[0]
        return container if container["State"]["Status"] == "exited" and container["RestartCount"] == 3 else None

    assert until(ended, "the container to end")["State"]["ExitCode"] == 2
    console = subprocess.run(["docker", "logs", name], capture_output=True, text=True, check=True)
    assert (console.stdout + console.stderr).count("error:") == 1
