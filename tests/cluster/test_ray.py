"""`muster ray` on three hosts of the rack, with the real Ray that the folder's requirements.txt lists."""

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from lab import waiting
from tests.cluster.control import BASE, end_all

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
LEFT = "pgrep -c 'raylet|gcs_server' || true"


@pytest.fixture
def ray(rack, tmp_path):
    """A copy of the example's folder, and `fab` in it; its run is removed after the test."""
    shutil.copytree(HOME / "examples/ray", tmp_path, dirs_exist_ok=True)
    name, hosts = f"test-{uuid.uuid4().hex[:8]}", rack.hosts[:3]
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config), "PYTHONPATH": str(HOME)}
    started = []

    def line(task, *words):
        where = ["--hosts", ",".join(hosts)] if task == "ray" else []
        return [FAB, "--search-root", str(HOME), task, *where, "--run", name, *words]

    def fab(task, *words):
        return subprocess.run(
            line(task, *words), cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=500
        )

    def start(task, *words):
        out = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
        started.append(subprocess.Popen(line(task, *words), cwd=tmp_path, env=environment, text=True, **out))
        return started[-1]

    fab.id, fab.folder, fab.rack, fab.hosts, fab.dir = name, tmp_path, rack, hosts, tmp_path / "runs" / name
    fab.start, fab.image = start, ("--image", BASE)
    yield fab
    end_all(started)
    fab("down", "--hosts", ",".join(hosts))
    for host in hosts:
        rack.on(host, f"rm -rf ~/.muster/runs/{name}")


def log(ray, rank=0, host=None):
    return ray.rack.on(host or ray.hosts[0], f"cat ~/.muster/runs/{ray.id}/logs/rank-{rank}.log 2>/dev/null; true")


def has_all(ray):
    """Whether Ray itself lists all three hosts in its cluster."""
    done = ray("exec", "--rank", "0", "--", "env", "RAY_AUTH_MODE=token", "ray", "status")
    return done.stdout.partition("Active:")[2].partition("Pending:")[0].count("1 node_") == 3


def test_a_driver_uses_every_host_and_the_cluster_ends_with_it(ray):
    done = ray("ray", *ray.image, "train_rl.py", "--rounds", "10")
    assert done.returncode == 0, done.stdout + done.stderr
    workers = next(line for line in done.stdout.splitlines() if "workers on" in line)
    assert len(set(workers.split("workers on ")[1].split())) == 3, workers
    assert "round 9:" in done.stdout
    assert json.loads((ray.dir / "outcome.json").read_text())["verdict"] == "done"
    for host in ray.hosts:
        assert not ray.rack.on(host, f"docker ps -aq --filter label=muster.run={ray.id}").split()
        assert ray.rack.root(host, "sh", "-c", LEFT) == "0"


def test_a_failed_driver_ends_the_run_with_its_error(ray):
    (ray.folder / "wrong.py").write_text("import ray\nray.init()\nraise ValueError('bad sample 7')\n")
    done = ray("ray", *ray.image, "wrong.py")
    assert done.returncode == 1
    assert f"head on {ray.hosts[0]}: wrong.py ended with code 1: ValueError: bad sample 7" in done.stdout + done.stderr


def test_a_killed_worker_comes_back_and_training_continues(ray):
    run = ray.start("ray", *ray.image, "train_rl.py", "--rounds", "4000")
    try:
        waiting.until(lambda: "round 3:" in log(ray), "it trains", 240)
        killed = ray.hosts[2]
        ray.rack.root(killed, "pkill", "-9", "-x", "raylet")
        at = log(ray).count("round ")
        waiting.until(lambda: log(ray).count("round ") > at + 50, "the loop goes on", 120)
        events = f"cat ~/.muster/runs/{ray.id}/ranks/*.jsonl"
        waiting.until(lambda: re.search(r'"again": ?true', ray.rack.on(killed, events)), "the worker starts again", 60)
        waiting.until(lambda: has_all(ray), "all three hosts are in the cluster again", 120)
    finally:
        stopped = ray("stop")
        run.communicate(timeout=120)
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    for host in ray.hosts:
        assert not ray.rack.on(host, f"docker ps -q --filter label=muster.run={ray.id}").split()


def test_a_cluster_without_a_driver_stays_until_stopped_with_its_dashboard_on_loopback(ray):
    started = ray("ray", *ray.image, "--detach")
    assert started.returncode == 0, started.stdout + started.stderr
    head = ray.hosts[0]
    waiting.until(lambda: "127.0.0.1:8265" in ray.rack.on(head, "ss -ltn"), "the dashboard listens", 120)
    assert "0.0.0.0:8265" not in ray.rack.on(head, "ss -ltn")
    no_token = f"docker exec muster-{ray.id} env HOME=/tmp RAY_AUTH_MODE=disabled ray status"
    refused = ray.rack.ssh(head, no_token, timeout=60)
    assert refused.returncode != 0
    assert "InvalidAuthToken" in refused.stderr
    waiting.until(lambda: has_all(ray), "all three hosts have joined", 120)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        here = probe.getsockname()[1]
    port = ray.start("port", f"{here}:8265")
    try:

        def answers():
            url = f"http://127.0.0.1:{here}/api/version"
            done = subprocess.run(["curl", "-s", "-m", "5", url], capture_output=True, text=True)
            return "ray" in done.stdout or "oken" in done.stdout

        waiting.until(answers, "the dashboard answers here", 60)
    finally:
        port.terminate()
        port.communicate(timeout=30)
    stopped = ray("stop")
    assert stopped.returncode == 0, stopped.stdout + stopped.stderr
    waiting.until(
        lambda: not any(ray.rack.on(host, f"docker ps -q --filter label=muster.run={ray.id}") for host in ray.hosts),
        "no container is left",
        60,
    )
