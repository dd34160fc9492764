"""A run of several roles on three hosts of the rack, from one cluster.toml; each role decides for itself."""

import json
import os
import shutil
import subprocess
import sys
import time
import uuid
from pathlib import Path

import pytest

from lab import waiting
from tests.cluster.control import BASE

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")


@pytest.fixture
def run(rack, tmp_path):
    """A copy of the example with the rack's hosts in its file, and `fab` in it; its run is removed after the test."""
    shutil.copytree(HOME / "examples/roles", tmp_path, dirs_exist_ok=True)
    file = tmp_path / "cluster.toml"
    text = file.read_text()
    for name, host in zip(("gpu-a", "gpu-b", "gpu-c"), rack.hosts, strict=False):
        text = text.replace(f'"{name}"', f'"{host}"')
    file.write_text(text)
    name = f"test-{uuid.uuid4().hex[:8]}"
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config), "PYTHONPATH": str(HOME)}

    def fab(task, *words):
        line = [FAB, "--search-root", str(HOME), task, "--allow-folder", *words]
        return subprocess.run(line, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=400)

    fab.id, fab.folder, fab.rack, fab.dir = name, tmp_path, rack, tmp_path / "runs" / name
    yield fab
    ended = fab("down", "--run", name)
    assert ended.returncode == 0, ended.stderr
    for host in rack.hosts[:3]:
        rack.on(host, f"rm -rf ~/.muster/runs/{name}")


def test_the_example_trains_on_three_hosts_and_ends_with_its_trainer(run):
    done = run("deploy", "--run", run.id, "--image", BASE)
    assert done.returncode == 0, done.stderr
    assert "round 39" in done.stdout
    outcome = json.loads((run.dir / "outcome.json").read_text())
    assert outcome["verdict"] == "done"
    for host in run.rack.hosts[:3]:
        assert not run.rack.on(host, f"docker ps -aq --filter label=muster.run={run.id}").split()


def test_without_a_follower_a_killed_worker_comes_back_and_the_run_ends_by_itself(run):
    file = run.folder / "cluster.toml"
    file.write_text(file.read_text().replace("trainer.py 40", "trainer.py 2000"))
    started = run("deploy", "--run", run.id, "--image", BASE, "--detach")
    assert started.returncode == 0, started.stderr
    trainer, worker, _ = run.rack.hosts[:3]
    log = f"~/.muster/runs/{run.id}/logs/rank-0.log"
    waiting.until(lambda: "round 3:" in run.rack.on(trainer, f"cat {log} 2>/dev/null; true"), "it trains", 90)
    events = f"cat ~/.muster/runs/{run.id}/ranks/*.jsonl 2>/dev/null; true"

    def rows():
        return [json.loads(line) for line in run.rack.on(worker, events).splitlines()]

    began = [
        row["pid"] for row in rows() if row["kind"] == "began"
    ]  # `ps` shows torchrun's command line for a forked rank
    killed = time.time()
    run.rack.on(worker, f"docker exec muster-{run.id} sh -c 'kill -9 {began[-1]}'")

    def is_back():
        return any(row["kind"] == "role" and row["phase"] == "ready" and row["t"] > killed for row in rows())

    waiting.until(is_back, "the worker is back", 30)
    running = f"docker ps -q --filter label=muster.run={run.id}"
    hosts = run.rack.hosts[:3]
    waiting.until(lambda: not any(run.rack.on(host, running).strip() for host in hosts), "it has ended", 120)
    codes = [run.rack.on(host, f"docker inspect -f {{{{.State.ExitCode}}}} muster-{run.id}").strip() for host in hosts]
    assert codes == ["0", "0", "0"]
