"""The scripts and the recipe of examples/, each unchanged, on two hosts of the rack."""

import os
import re
import shutil
import subprocess
import sys
import uuid
from contextlib import contextmanager
from pathlib import Path

import pytest

from lab.ports import free_port
from lab.waiting import events, losses
from tests.cluster.control import BASE

HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
IMAGE = "muster-examples:cpu"
SCRIPTS = (
    "ddp.py",
    "ddp_that_resumes.py",
    "fsdp2.py",
    "char_lm.py",
    "lightning_train.py",
    "accelerate_train.py",
    "hf_trainer.py",
)
CUT, RECIPE = ("pipeline.py", "context.py"), "my_recipe.py"


def test_every_example_is_tried_here():
    # test_roles.py and test_ray.py try the examples in `roles` and `ray`.
    others = {path.name for folder in ("roles", "ray") for path in (HOME / "examples" / folder).glob("*.py")}
    assert {path.name for path in (HOME / "examples").rglob("*.py")} == {*SCRIPTS, *CUT, RECIPE, *others}


@pytest.fixture(scope="module")
def image(docker):
    """The trainer's image with the packages of examples/requirements.txt."""
    line = ["images/packages.sh", "examples/requirements.txt", IMAGE]
    done = subprocess.run(line, cwd=HOME, capture_output=True, text=True, timeout=400)
    assert done.returncode == 0, done.stderr
    return IMAGE


@pytest.mark.parametrize("script", SCRIPTS)
def test_an_example_trains_on_two_hosts_as_one_and_its_model_comes_home(rack, image, script):
    hosts = rack.hosts[:2]
    with deployed(rack, image, "examples", "--script", f"{script} --epochs 2 --save /muster/run/model.pt") as (
        run,
        folder,
    ):
        lines = [
            [line for line in (folder / "logs" / f"{host}.log").read_text().splitlines() if f"rank {rank} of 2" in line]
            for rank, host in enumerate(hosts)
        ]
        assert all("epoch 2 loss" in of_rank[-1] for of_rank in lines)
        # Each rank prints the loss of both, or of the same model, so equal losses show that they trained as one.
        if not script.startswith(("ddp", "char")):
            assert lines[0][-1].split("loss")[1] == lines[1][-1].split("loss")[1]
        fetched = fab(rack, "fetch", "--run", run)
        assert fetched.returncode == 0, fetched.stderr
        assert (folder / "model.pt").stat().st_size > 500


@pytest.mark.parametrize("script", CUT)
def test_a_model_split_by_layers_or_tokens_has_the_losses_of_one_process_on_two_hosts(rack, script):
    alone = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=1", f"--master-port={free_port()}"]
    one = subprocess.run([*alone, HOME / "examples/parallel" / script], capture_output=True, text=True, timeout=200)
    with deployed(rack, BASE, "examples/parallel", "--script", script) as (_, folder):
        two = "".join((folder / "logs" / f"{host}.log").read_text() for host in rack.hosts[:2])
    expected, got = ([float(loss) for loss in re.findall(r"step \d+   loss (\S+)", text)] for text in (one.stdout, two))
    assert len(expected) == 3
    assert got == pytest.approx(expected, rel=1e-5)


def test_the_recipe_of_the_examples_trains_on_two_hosts(rack):
    words = ["--args", f"--recipe {RECIPE} --steps 30 --log-every 1 --eval-every 0"]
    with deployed(rack, BASE, "examples", *words) as (_, folder):
        assert [event["world"] for event in events(folder, 0, "started")] == [2]
        found = losses(folder)
    assert sorted(found) == list(range(1, 31))
    assert found[30] < found[1]


def fab(rack, task, *words):
    """Run a task on two hosts of the rack."""
    line = [FAB, task, "--hosts", ",".join(rack.hosts[:2]), *words]
    environment = {**os.environ, "MUSTER_SSH_CONFIG": str(rack.ssh_config)}
    return subprocess.run(line, cwd=HOME, env=environment, capture_output=True, text=True, timeout=400)


@contextmanager
def deployed(rack, image, folder, *words):
    """Deploy on two hosts with these arguments; yields the finished run and its local folder; later removes both."""
    run = f"test-{uuid.uuid4().hex[:8]}"
    try:
        done = fab(rack, "deploy", "--run", run, "--image", image, "--folder", folder, *words)
        assert done.returncode == 0, done.stderr
        yield run, HOME / "runs" / run
    finally:
        fab(rack, "down", "--run", run)
        for host in rack.hosts[:2]:
            rack.on(host, f"rm -rf ~/.muster/runs/{run}")
        shutil.rmtree(HOME / "runs" / run, ignore_errors=True)
