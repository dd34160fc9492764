"""The scripts of examples/, each as it stands, on two hosts of the rack."""

import os
import shutil
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
IMAGE = "muster-examples:cpu"


@pytest.fixture(scope="module")
def image(docker):
    """The trainer's image with the packages of examples/requirements.txt."""
    line = ["images/packages.sh", "examples/requirements.txt", IMAGE]
    done = subprocess.run(line, cwd=HOME, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return IMAGE


@pytest.mark.parametrize("script", ["ddp.py", "ddp_that_resumes.py", "lightning_train.py", "accelerate_train.py"])
def test_an_example_trains_on_two_hosts_as_one_and_its_model_comes_home(rack, image, script):
    hosts, run = rack.hosts[:2], f"test-{uuid.uuid4().hex[:8]}"
    folder, environment = HOME / "runs" / run, {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}

    def fab(task, *words):
        line = [FAB, task, "--hosts", ",".join(hosts), *words]
        return subprocess.run(line, cwd=HOME, env=environment, capture_output=True, text=True, timeout=400)

    try:
        what = f"{script} --epochs 2 --save /muster/run/model.pt"
        done = fab("deploy", "--run", run, "--image", image, "--folder", "examples", "--script", what)
        assert done.returncode == 0, done.stderr
        lines = [
            [line for line in (folder / "logs" / f"{host}.log").read_text().splitlines() if f"rank {rank} of 2" in line]
            for rank, host in enumerate(hosts)
        ]
        assert all("epoch 2 loss" in of_rank[-1] for of_rank in lines)
        # Each of the two sees the loss of both, or the same model: they trained as one.
        if not script.startswith("ddp"):
            assert lines[0][-1].split("loss")[1] == lines[1][-1].split("loss")[1]
        fetched = fab("fetch", "--run", run)
        assert fetched.returncode == 0, fetched.stderr
        assert (folder / "model.pt").stat().st_size > 500
    finally:
        fab("down", "--run", run)
        for host in hosts:
            rack.on(host, f"rm -rf ~/.muster/runs/{run}")
        shutil.rmtree(folder, ignore_errors=True)
