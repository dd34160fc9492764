"""The launch forms of docs/how-to/launch.md on two boxes without an engine: all ranks form one world."""

import re

import pytest

from tests.cluster import boxes as rented
from tests.cluster.test_bootstrap import bare_image  # noqa: F401
from tests.dist.test_other_launchers import PLAIN

COMMON = """
import torch, torch.distributed as dist
def train(**own):
    dist.init_process_group("gloo", **own)
    x = torch.tensor(1.0 + dist.get_rank())
    dist.all_reduce(x)
    print("rank", dist.get_rank(), "of", dist.get_world_size(), "sum", x.item(), flush=True)
    dist.barrier()
    dist.destroy_process_group()
"""
BY_VARIABLES = (
    "import os\nfrom common import train\ntrain(rank=int(os.environ['{}']), world_size=int(os.environ['{}']))\n"
)
SPAWN = """
import argparse, torch.multiprocessing as mp
from common import train
parser = argparse.ArgumentParser()
for name, kind in (("--rank", int), ("--world-size", int), ("--dist-url", str)):
    parser.add_argument(name, type=kind)
given = parser.parse_args()
def work(_):
    train(init_method=given.dist_url, rank=given.rank, world_size=given.world_size)
if __name__ == "__main__":
    mp.spawn(work, (), nprocs=1)
"""
LOCAL_RANK = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--local-rank", "--local_rank", type=int, required=True)
print("local rank", parser.parse_args().local_rank)
"""
FILES = {
    "common.py": COMMON,
    "train.py": f"{COMMON}train()\n",
    "pkg/__init__.py": "",
    "pkg/train.py": f"{COMMON}train()\n",
    "local.py": f"{LOCAL_RANK}{COMMON}train()\n",
    "plain.py": PLAIN,
    "spawn.py": SPAWN,
    "slurm.py": BY_VARIABLES.format("SLURM_PROCID", "SLURM_NTASKS"),
    "mpi.py": BY_VARIABLES.format("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
    "run.sh": "torchrun train.py\n",
    "python.sh": "python train.py\n",
    "requirements.txt": "accelerate==1.15.0\n",
}
EACH = "spawn.py --rank {node_rank} --world-size {nodes} --dist-url tcp://{master}:{port}"
# What the user types after `muster deploy -H a,b`, and how many ranks train.
FORMS = [
    (("--", "train.py"), 2),
    (("--", "-m", "pkg.train"), 2),
    (("--", "torchrun", "--nproc-per-node", "2", "train.py"), 4),
    (("--", "torchrun", "--nnodes", "2", "--node-rank", "0", "--master-addr", "a", "train.py"), 2),
    (("--", "torchrun", "--rdzv-backend", "etcd-v2", "--rdzv-endpoint", "e:2379", "train.py"), 2),
    (("--", "python", "-m", "torch.distributed.launch", "--nproc_per_node", "2", "local.py"), 4),
    (("--", "accelerate", "launch", "plain.py"), 2),
    (("--", "bash", "run.sh"), 2),
    (("--", "bash", "python.sh"), 2),
    (("--each", EACH), 2),
    (("--style", "slurm", "--", "slurm.py"), 2),
    (("--nproc", "2", "--style", "mpi", "--", "mpi.py"), 4),
]


@pytest.fixture(scope="module")
def boxes(request, tmp_path_factory):
    image = request.getfixturevalue("bare_image")
    with rented.started(2, image, tmp_path_factory.mktemp("boxes")) as up:
        yield up


@pytest.fixture
def control(boxes, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    made = rented.control_of(boxes, tmp_path)
    yield made
    rented.leave_nothing(made)


@pytest.mark.parametrize(("words", "ranks"), FORMS)
def test_each_form_of_the_launch_page_trains_on_two_boxes_as_one_world(control, words, ranks):
    done = control.fab("deploy", "--run", control.run, "--folder", str(control.code), "--rank", "all", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    total = float(ranks * (ranks + 1) // 2)
    assert sorted(re.findall(r"rank (\d) of (\d) sum ([\d.]+)", done.stdout)) == [
        (str(rank), str(ranks), str(total)) for rank in range(ranks)
    ]
