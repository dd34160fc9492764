"""`muster.Training` on ranks started as torchrun starts them: they are killed, stopped, and have separate disks."""

import signal
import subprocess
import sys

import pytest

from lab.ports import free_port
from lab.waiting import until
from tests.dist.conftest import HOME, environment

pytestmark = pytest.mark.torch

# The layers are used in a different order than they are registered, and fill more than one DDP bucket.
SCRIPT = """
import hashlib, os, sys, time
import torch, torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import TensorDataset
import muster

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.out, self.middle = nn.Linear(600, 1), nn.Linear(600, 600)
        self.drop = nn.Dropout(0.1)
    def forward(self, x):
        if not hasattr(self, "cache"):
            self.register_buffer("cache", torch.ones(1), persistent=False)
        return self.out(torch.relu(self.drop(self.middle(torch.relu(x.div_(2)))))) * self.cache

steps, pause, lacks = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3])
dist.init_process_group("gloo")
torch.manual_seed(0)
data = TensorDataset(torch.randn(100, 8), torch.randn(100, 1))
data.tensors = tuple(tensor[lacks * dist.get_rank() :] for tensor in data.tensors)
into, model = DistributedDataParallel(nn.Linear(8, 600)), DistributedDataParallel(Net())
parameters = [*into.parameters(), *model.parameters()]
optimizer = torch.optim.AdamW(parameters)
training = muster.Training(save_every=5, into=into, model=model, optimizer=optimizer)
for x, y in training.batches(data, batch=12, steps=steps):
    loss = (model(into(x)) - y).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    time.sleep(pause)
    print("step", training.step + 1, flush=True)
weights = b"".join(p.detach().numpy().tobytes() for p in parameters)
print("weights", hashlib.sha256(weights).hexdigest(), flush=True)
dist.destroy_process_group()
"""


class Ranks:
    """Ranks of SCRIPT as processes, each in `folders[rank]`; with `apart`, each rank is the first of its own host."""

    def __init__(self, folders, steps, pause=0.0, apart=False, lacks=0):
        port = free_port()
        self.processes = []
        for rank, folder in enumerate(folders):
            folder.mkdir(exist_ok=True)
            (folder / "train.py").write_text(SCRIPT)
            place = {"RANK": rank, "WORLD_SIZE": len(folders), "LOCAL_RANK": 0 if apart else rank}
            variables = {name: str(value) for name, value in place.items()}
            variables |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "PYTHONPATH": str(HOME)}
            with (folder / f"said-{rank}").open("w") as said:
                command = [sys.executable, "train.py", str(steps), str(pause), str(lacks)]
                self.processes.append(
                    subprocess.Popen(command, cwd=folder, env=environment(**variables), stdout=said, stderr=said)
                )
        self.said = [folder / f"said-{rank}" for rank, folder in enumerate(folders)]

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def codes(self):
        return [process.wait(timeout=120) for process in self.processes]

    def weights(self):
        """Wait until all ranks are done; return the set of digests of their final weights."""
        assert self.codes() == [0] * len(self.processes), "\n".join(path.read_text() for path in self.said)
        return {path.read_text().split("weights ")[1].strip() for path in self.said}


@pytest.fixture
def start():
    started = []

    def begin(*args, **kwargs):
        started.append(Ranks(*args, **kwargs))
        return started[-1]

    yield begin
    for ranks in started:
        ranks.kill()


def test_killed_ranks_continue_with_weights_equal_to_the_last_bit(start, tmp_path):
    whole = start([tmp_path / "whole"] * 3, 20).weights()
    assert len(whole) == 1
    cut = start([tmp_path / "cut"] * 3, 20, 0.05)
    until(lambda: (tmp_path / "cut/training/checkpoints/step-00000010").exists(), "a checkpoint")
    cut.kill()
    assert start([tmp_path / "cut"] * 3, 20).weights() == whole


def test_the_rank_that_has_the_checkpoint_gives_it_to_the_others(start, tmp_path):
    disks = [tmp_path / "first", tmp_path / "second"]
    start(disks, 10, apart=True).weights()
    assert not (disks[1] / "training/checkpoints").exists()
    whole = start([tmp_path / "whole"] * 2, 20).weights()
    (disks[0] / "training").rename(disks[1] / "training")
    resumed = start(disks, 20, apart=True)
    assert resumed.weights() == whole
    assert "continues at step 10" in resumed.said[0].read_text()


def test_a_signal_to_one_rank_ends_all_after_the_same_step(start, tmp_path):
    ranks = start([tmp_path] * 2, 10_000, 0.02)
    until(lambda: "step 7" in ranks.said[1].read_text(), "step 7")
    ranks.processes[1].send_signal(signal.SIGTERM)
    assert ranks.codes() == [75, 75]
    steps = [[line for line in path.read_text().splitlines() if line.startswith("step ")][-1] for path in ranks.said]
    assert steps[0] == steps[1]
    assert (tmp_path / f"training/checkpoints/step-{int(steps[0].split()[1]):08d}").is_dir()


def test_ranks_with_data_of_different_size_are_refused_and_do_not_wait_for_each_other(start, tmp_path):
    ranks = start([tmp_path] * 2, 20, lacks=3)
    assert 0 not in ranks.codes()
    assert "rank 0 has 100 samples, but rank 1 has 97" in ranks.said[0].read_text()


# The default group takes no CPU tensors, as after init_process_group("nccl"); torch's fake backend replaces NCCL.
FOR_GPUS_ALONE = """
import sys, torch, torch.distributed as dist
import torch.testing._internal.distributed.fake_pg
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.utils.data import TensorDataset
import muster

dist.init_process_group("cuda:fake")
mesh = DeviceMesh.from_group(dist.new_group(backend="gloo"), "cpu")
torch.manual_seed(0)
model = torch.nn.Linear(8, 8)
if sys.argv[1] == "cut":
    fully_shard(model, mesh=mesh)
optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
training = muster.Training(save_every=2, model=model, optimizer=optimizer)
sys.stdout.write(f"from {training.step}\\n")
for (batch,) in training.batches(TensorDataset(torch.ones(16, 8)), batch=8, epochs=2):
    optimizer.zero_grad()
    model(batch).sum().backward()
    optimizer.step()
sys.stdout.write(f"to {training.step}\\n")
"""


@pytest.mark.parametrize("model", ["whole", "cut"])
def test_training_works_if_the_default_group_takes_no_cpu_tensors(tmp_path, model):
    (tmp_path / "train.py").write_text(FOR_GPUS_ALONE)
    torchrun = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", "--master-port"]

    def started():
        command = [*torchrun, str(free_port()), "train.py", model]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment(PYTHONPATH=str(HOME)), capture_output=True, text=True, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return done.stdout.split()

    assert sorted(started()) == ["0", "0", "4", "4", "from", "from", "to", "to"]
    assert sorted(started()) == ["4", "4", "4", "4", "from", "from", "to", "to"]
