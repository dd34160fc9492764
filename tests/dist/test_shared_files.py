"""A script on several hosts, each with its own run folder: between attempts, the hosts share the files it wrote."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from deploy.run.environment import local_spec
from lab.ports import free_port
from tests.dist.conftest import environment

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
# Like most scripts: only rank 0 writes the checkpoint, and every rank loads it.
SCRIPT = """
import os, signal, torch
import torch.distributed as dist
dist.init_process_group("gloo")
rank = dist.get_rank()
path = "checkpoints/last.pt"
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.01)
first = torch.load(path)["step"] + 1 if os.path.exists(path) else 0
print("begins at", first, flush=True)
for step in range(first, 12):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).sum().backward()
    optimizer.step()
    if rank == 0:
        os.makedirs("checkpoints", exist_ok=True)
        torch.save({"step": step}, path + ".new")
        os.replace(path + ".new", path)
    dist.barrier()
    if rank == 1 and step == 3 or rank == 0 and step == 7:
        os.kill(os.getpid(), signal.SIGKILL)
assert int(torch.load(path)["step"]) == step if rank == 0 else not os.environ.get("MUSTER_SHARE_KEY")
"""


@pytest.fixture
def hosts(tmp_path):
    """The agents of two hosts; they are killed at the end."""
    sent = tmp_path / "sent"
    sent.mkdir()
    (sent / "train.py").write_text(SCRIPT)
    spec = local_spec(tmp_path / "run", 1, 1, ("--script", "train.py"), free_port(), 2, "Linux")
    started = []
    for node in spec.nodes:
        folder = tmp_path / node.name
        own = {"MUSTER_RUN_DIR": str(folder), "MUSTER_SENT": str(sent), "MUSTER_SHARE_KEY": "00ff" * 8}
        variables = environment(**{**node.environment, **own, "PET_MAX_RESTARTS": "3", "PYTHONPATH": str(HOME)})
        variables.pop("MUSTER_STOP_ON_EOF")
        (folder / "logs").mkdir(parents=True)
        command = [sys.executable, "-m", "muster.trainer.node", "agent", *spec.arguments]
        with (folder / "console").open("wb") as console:
            started.append(subprocess.Popen(command, cwd=HOME, env=variables, stdout=console, stderr=console))
    yield {node.name: (tmp_path / node.name, agent) for node, agent in zip(spec.nodes, started, strict=True)}
    for agent in started:
        agent.kill()
        agent.wait()


def test_all_ranks_continue_with_the_checkpoint_that_rank_0_alone_wrote(hosts):
    for folder, agent in hosts.values():
        assert agent.wait(100) == 0, (folder / "console").read_text()
        console = (folder / "console").read_text()
        assert [line for line in console.splitlines() if line.startswith("begins")] == [
            "begins at 0",
            "begins at 4",
            "begins at 8",
        ]
    worker = hosts["worker-1"][0]
    lines = [json.loads(line) for line in (worker / "ranks/rank-1.jsonl").read_text().splitlines()]
    shared = [(event["source"], event["files"]) for event in lines if event["kind"] == "shared"]
    assert shared == [("master", 1), ("master", 1)]
    assert list(json.loads((worker / "copies.json").read_text())) == ["work/checkpoints/last.pt"]
