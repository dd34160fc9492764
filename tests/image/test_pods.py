"""What `muster export --to jobset` and `--to trainjob` print, run as pods on this machine's Docker: two of them train.

There is no cluster here. tests/pods.py takes its place: it starts exactly what the text describes.
"""

import json
import os
import re
import subprocess
import sys
import uuid
import zipfile
from pathlib import Path

import pytest

from lab import waiting
from tests import pods

HOME = Path(__file__).resolve().parents[2]
# The page's Dockerfile, verbatim.
DOCKERFILE = re.search(
    r"^FROM muster-trainer:gpu\n([^`]+)", (HOME / "docs/how-to/kubernetes.md").read_text(), re.MULTILINE
)
FAB = Path(sys.executable).with_name("fab")
TRAIN = """
import os, pathlib, sys
import packed  # of requirements.txt
import torch, torch.distributed as dist
dist.init_process_group("gloo")
one = torch.ones(1)
dist.all_reduce(one)
assert os.environ["HF_TOKEN"] == "hidden"
print("joined", flush=True)
if dist.get_rank() == 0:
    pathlib.Path("result").write_text(f"{int(one)} {sys.argv[1:]}")
dist.destroy_process_group()
"""
STOPS = """
import signal, sys, time
import torch.distributed as dist
dist.init_process_group("gloo")
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
print("up", flush=True)
while True:
    time.sleep(0.1)
"""
FORMS = {
    "python": ("python train.py '$(A)'", 2),
    "torchrun": ("torchrun --nproc-per-node 2 train.py x", 4),
    "module": ("python -m pkg.train y", 2),
    "shell": ("bash run.sh", 2),
    "file": ("./train.py z", 2),
}


@pytest.fixture
def cluster(tmp_path, image):
    """A network, a folder in place of the claim, and an image with the user's folder; all removed afterwards."""
    name = f"muster-pods-{uuid.uuid4().hex[:8]}"
    source = tmp_path / "source"
    (source / "pkg").mkdir(parents=True)
    for file in ("train.py", "pkg/train.py"):
        (source / file).write_text(f"#!/usr/bin/env python3\n{TRAIN}")
        (source / file).chmod(0o755)
    (source / "pkg/__init__.py").touch()
    (source / "run.sh").write_text("torchrun --nnodes $NNODES --node-rank $NODE_RANK --master-addr $MASTER_ADDR "
                                   "--master-port $MASTER_PORT --nproc-per-node 1 train.py\n")  # fmt: skip
    (source / "Dockerfile").write_text(f"FROM {image}\n{DOCKERFILE[1]}")
    (source / "requirements.txt").write_text("/workspace/packed-1-py3-none-any.whl\n")
    with zipfile.ZipFile(source / "packed-1-py3-none-any.whl", "w") as wheel:
        wheel.writestr("packed.py", "")
        wheel.writestr("packed-1.dist-info/METADATA", "Metadata-Version: 2.1\nName: packed\nVersion: 1\n")
        wheel.writestr("packed-1.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr("packed-1.dist-info/RECORD", "packed.py,,\n")
    subprocess.run(["docker", "build", "-q", "-t", name, source], check=True, capture_output=True, timeout=120)
    subprocess.run(
        ["docker", "network", "create", "--label", "muster.test=pods", name], check=True, capture_output=True
    )
    runs = tmp_path / "runs"
    runs.mkdir(mode=0o777)
    runs.chmod(0o777)
    yield name, source, runs
    started = subprocess.run(
        ["docker", "ps", "-aq", "--filter", f"network={name}"], capture_output=True, text=True, check=True
    )
    for words in (["rm", "-f", *started.stdout.split()], ["network", "rm", name], ["rmi", name]):
        subprocess.run(["docker", *words], capture_output=True)


def exported(cluster, kind, script, *more):
    name, source, _ = cluster
    words = ["export", "--to", kind, "--run", "train", "--nodes", "2", "--image", name, "--secret", "HF_TOKEN=hf"]
    done = subprocess.run(
        [FAB, "--search-root", str(HOME), *words, *more, "--script", script],
        cwd=source, env={**os.environ, "PYTHONPATH": str(HOME)}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def ended(containers):
    """The exit codes of the containers and what they printed, once all have ended."""

    def states():
        words = ["docker", "inspect", "-f", "{{.State.Status}} {{.State.ExitCode}}", *containers]
        return subprocess.run(words, capture_output=True, text=True, check=True).stdout.split()

    waiting.until(lambda: set(states()[::2]) == {"exited"}, "the pods end", 180)
    printed = [subprocess.run(["docker", "logs", each], capture_output=True, text=True) for each in containers]
    return states()[1::2], "\n".join(each.stdout + each.stderr for each in printed)


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
@pytest.mark.parametrize("form", FORMS)
def test_two_pods_train_together_and_keep_their_files_on_the_claim(cluster, kind, form):
    script, world = FORMS[form]
    containers = pods.start(exported(cluster, kind, script), cluster[0], cluster[2], {"HF_TOKEN": "hidden"})
    codes, printed = ended(containers)
    assert codes == ["0", "0"], printed
    assert (cluster[2] / "train/work/result").read_text().startswith(f"{world} ")
    if form == "python":
        assert (cluster[2] / "train/work/result").read_text() == "2 ['$(A)']"
    assert (cluster[2] / "train/logs/rank-0.log").exists()


def test_stopped_pods_all_end_with_the_code_that_counts_as_no_failure(cluster):
    (cluster[1] / "train.py").write_text(STOPS)
    subprocess.run(
        ["docker", "build", "-q", "-t", cluster[0], cluster[1]], check=True, capture_output=True, timeout=120
    )
    containers = pods.start(exported(cluster, "jobset", "train.py"), cluster[0], cluster[2], {"HF_TOKEN": "hidden"})
    log = cluster[2] / "train/logs/rank-0.log"
    waiting.until(lambda: log.exists() and "up" in log.read_text(), "it trains", 300)
    for each in containers:
        subprocess.run(["docker", "kill", "--signal", "TERM", each], check=True, capture_output=True)
    codes, printed = ended(containers)
    assert codes == ["75", "75"], printed


@pytest.mark.parametrize("kind", ["jobset", "trainjob"])
def test_roles_run_as_pods_a_worker_restarts_and_the_run_ends_with_its_trainer(cluster, kind):
    name, source, runs = cluster
    for path in (HOME / "examples/roles").iterdir():
        (source / path.name).write_text(path.read_text())
    file = source / "cluster.toml"
    file.write_text(
        file.read_text().replace('hosts = ["gpu-b"]', "nodes = 2").replace("trainer.py 40", "trainer.py 400")
    )
    subprocess.run(["docker", "build", "-q", "-t", name, source], check=True, capture_output=True, timeout=120)
    words = [FAB, "--search-root", str(HOME), "export", "--to", kind, "--run", "rl", "--image", name, "--allow-folder"]
    done = subprocess.run(
        words, cwd=source, env={**os.environ, "PYTHONPATH": str(HOME)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    containers = pods.start(done.stdout, name, runs, {"MUSTER_ROLES_KEY": uuid.uuid4().hex})
    log, folder = runs / "rl/logs/rank-0.log", runs / "rl"
    waiting.until(lambda: log.exists() and "round 5" in log.read_text(), "it trains", 300)
    worker = next(each for each in containers if "rollout" in role_of(each))
    began = [json.loads(line) for line in (folder / "ranks/rank-3.jsonl").read_text().splitlines()]
    kill = f"import os; os.kill({next(each['pid'] for each in began if each['kind'] == 'began')}, 9)"
    subprocess.run(["docker", "exec", worker, "python", "-c", kill], check=True, timeout=30)
    codes, printed = ended(containers)
    assert set(codes) == {"0"}, printed
    assert (folder / "work/policy.pt").exists()
    events = [json.loads(line) for path in folder.rglob("*.jsonl") for line in path.read_text().splitlines()]
    assert [each["role"] for each in events if each.get("again")] == ["rollout"]


def role_of(container):
    words = ["docker", "inspect", "-f", "{{range .Config.Env}}{{println .}}{{end}}", container]
    given = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    return next(line for line in given.splitlines() if line.startswith("MUSTER_ROLE="))
