"""Commands that start their node's ranks themselves: they train together, and their failures are reported."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port
from tests.dist.conftest import environment

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
TRAIN = """
import os, sys, torch
from torch.distributed import all_reduce, get_rank, get_world_size, init_process_group
init_process_group("gloo")
if sys.argv[1:] == ["fail"] and get_rank() == 1:
    raise ValueError("rank 1 has had enough")
number = torch.tensor([1.0 + get_rank()])
all_reduce(number)
print(f"rank {get_rank()} of {get_world_size()} sum {number.item()} node {os.environ.get('NODE_RANK')}\\n", end="")
"""

STYLED = """
import os, sys, torch, torch.distributed as dist
rank, world = (int(os.environ[name]) for name in sys.argv[1:])
dist.init_process_group("gloo", rank=rank, world_size=world)
number = torch.tensor([1.0 + rank])
dist.all_reduce(number)
print(f"rank {rank} of {world} sum {number.item()}\\n", end="")
"""

SPAWN = """
import argparse, torch, torch.distributed as dist, torch.multiprocessing as mp
parser = argparse.ArgumentParser()
parser.add_argument("--rank", type=int)
parser.add_argument("--world-size", type=int)
parser.add_argument("--dist-url")
def work(local, asked):
    rank, world = asked.rank * 2 + local, asked.world_size * 2
    dist.init_process_group("gloo", init_method=asked.dist_url, rank=rank, world_size=world)
    number = torch.tensor([1.0 + rank])
    dist.all_reduce(number)
    open(f"rank-{rank}-sum-{number.item()}", "w")
    dist.destroy_process_group()
if __name__ == "__main__":
    mp.spawn(work, args=(parser.parse_args(),), nprocs=2)
"""


@pytest.fixture
def up(tmp_path):
    """start(command): run `muster up` with a command on two nodes as processes; its output has that of all ranks."""
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "spawn.py").write_text(SPAWN)
    (tmp_path / "pkg").mkdir()
    (tmp_path / "pkg/styled.py").write_text(STYLED)
    (tmp_path / "old.py").write_text(TRAIN + "print('given', sys.argv[1], os.environ['LOCAL_RANK'])")
    (tmp_path / "run.sh").write_text("torchrun --nproc-per-node 2 train.py $1\n")
    (tmp_path / "plain.sh").write_text("python train.py\n")
    (tmp_path / "alone.sh").write_text("torchrun --standalone --nnodes 1 step.py\n")
    step = "import torch\nmodel = torch.nn.Linear(1, 1)\nmodel(torch.ones(1)).backward()\n"
    (tmp_path / "step.py").write_text(step + "torch.optim.SGD(model.parameters(), 0.1).step()\n")
    path = f"{tmp_path / 'bin'}:{Path(sys.executable).parent}:{os.environ['PATH']}"

    def start(command, workers="1", option="--script", more=()):
        line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--workers", workers, "--rank", "all"]
        return subprocess.run(
            [*line, *more, option, command],
            cwd=tmp_path,
            env={**os.environ, "PATH": path, "PYTHONPATH": str(HOME)},
            capture_output=True,
            text=True,
            timeout=180,
        )

    return start


def test_a_typed_torchrun_sets_the_number_of_ranks(up):
    done = up("torchrun --nproc-per-node 2 --nnodes 2 --master-addr gpu-a train.py")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 4 sum 10.0" in done.stdout for rank in range(4))
    assert "--master-addr: not used" in done.stderr


def test_options_for_an_etcd_server_are_ignored_and_the_nodes_meet_without_it(up):
    done = up("torchrun --rdzv-backend etcd-v2 --rdzv-endpoint e:2379 train.py")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2 sum 3.0" in done.stdout for rank in range(2))
    assert "--rdzv-backend" in done.stderr


STAGES = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
places = [f"cuda:{number}" for number in range(2)] if torch.cuda.device_count() > 1 else ["cpu", "cpu"]

class Stages(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = (torch.nn.Linear(4, 4).to(place) for place in places)

    def forward(self, x):
        return self.second(self.first(x.to(places[0])).to(places[1]))

torch.manual_seed(dist.get_rank())
model = torch.nn.parallel.DistributedDataParallel(Stages())
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    optimizer.zero_grad()
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
weights = torch.cat([each.detach().cpu().flatten() for each in model.parameters()])
both = [torch.empty_like(weights) for _ in range(dist.get_world_size())]
dist.all_gather(both, weights)
print("rank", dist.get_rank(), "of", len(both), "has the same weights:", all(each.equal(weights) for each in both))
"""
ONE_PROCESS = """
import torch
model = torch.nn.DataParallel(torch.nn.Linear(4, 4))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
for _ in range(3):
    model(torch.randn(8, 4)).square().mean().backward()
    optimizer.step()
"""


def test_a_model_in_stages_that_ddp_wraps_trains_together(up, tmp_path):
    (tmp_path / "stages.py").write_text(STAGES)
    done = up("stages.py")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2 has the same weights: True" in done.stdout for rank in range(2))


def test_data_parallel_on_two_nodes_fails_as_trained_alone_and_names_the_fix(up, tmp_path):
    (tmp_path / "one.py").write_text(ONE_PROCESS)
    done = up("one.py")
    assert done.returncode == 1, done.stderr
    assert "trained alone: its optimizer stepped, but the ranks formed no process group" in done.stderr
    assert "the script must call torch.distributed.init_process_group()" in done.stderr


def test_a_packages_own_command_that_starts_torchrun_joins_all_nodes(up, tmp_path):
    # Not a real package: a command that starts its ranks from the variables of its node, as LLaMA-Factory's does.
    program = tmp_path / "bin" / "fake-factory-cli"
    program.parent.mkdir()
    given = "--nnodes $NNODES --node_rank $NODE_RANK --master_addr $MASTER_ADDR --master_port $MASTER_PORT"
    program.write_text(f"#!/bin/sh\nexec torchrun {given} --nproc_per_node 2 $2\n")
    program.chmod(0o755)
    done = up("fake-factory-cli train train.py")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 4 sum 10.0" in done.stdout for rank in range(4))


def test_a_script_that_spawns_its_ranks_runs_once_on_each_node(up, tmp_path):
    command = "spawn.py --rank {node_rank} --world-size {nodes} --dist-url tcp://{master}:{port}"
    done = up(command, option="--each")
    assert done.returncode == 0, done.stderr
    work = next((tmp_path / "runs").glob("*/work"))
    assert {path.name for path in work.glob("rank-*")} == {f"rank-{rank}-sum-10.0" for rank in range(4)}


@pytest.mark.parametrize(
    ("style", "variables"),
    [("slurm", "SLURM_PROCID SLURM_NTASKS"), ("mpi", "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE")],
)
def test_a_module_that_reads_the_variables_of_srun_or_mpirun_finds_its_rank(up, style, variables):
    done = up(f"-m pkg.styled {variables}", more=("--style", style))
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2 sum 3.0" in done.stdout for rank in range(2))


def test_torchs_old_launcher_gives_each_rank_its_local_rank(up):
    done = up("python -m torch.distributed.launch --nproc_per_node=2 old.py")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("given --local-rank=0 0") == done.stdout.count("given --local-rank=1 1") == 2


def test_a_torchrun_in_a_shell_script_joins_all_nodes(up):
    done = up("bash run.sh")
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 sum 10.0 node {rank // 2}" in done.stdout


def test_a_plain_python_in_a_shell_script_is_the_rank_of_its_node(up):
    done = up("bash plain.sh")
    assert done.returncode == 0, done.stderr
    assert all(f"rank {rank} of 2 sum 3.0" in done.stdout for rank in range(2))


def test_the_rank_that_failed_below_a_launcher_is_quoted(up):
    done = up("bash run.sh fail")
    assert done.returncode == 1
    error = done.stderr[done.stderr.index("error: ") :]
    assert "ValueError: rank 1 has had enough" in error.splitlines()[0]
    assert "train.py" in error


def test_nodes_whose_launchers_train_alone_have_failed(up):
    done = up("bash alone.sh")
    assert done.returncode == 1
    assert "trained alone" in done.stderr


OLD = "python -m torch.distributed.launch --nproc_per_node=2 --nnodes=1 --node_rank=0 --master_addr=localhost "
FALLBACK = """ARGS=(--nnodes=${SLURM_NNODES:-1} --node-rank=${SLURM_NODEID:-0} --nproc-per-node=2)
torchrun "${ARGS[@]}" --rdzv-backend=c10d --rdzv-endpoint=localhost:$PORT step.py
"""
STEPS = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
model(torch.ones(1, 1)).sum().backward()
torch.optim.SGD(model.parameters(), 0.1).step()
"""
EVALUATE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
dist.all_reduce(torch.ones(1))
"""


@pytest.mark.parametrize(
    ("script", "line"),
    [
        (OLD + "--master_port=$((PORT + NODE_RANK)) step.py", "run.sh:1: python -m torch.distributed.launch"),
        (FALLBACK, "run.sh:1: ARGS=(--nnodes=${SLURM_NNODES:-1}"),
    ],
)
def test_a_launcher_with_its_own_world_fails_with_the_line_of_the_script_that_sets_it(up, tmp_path, script, line):
    (tmp_path / "step.py").write_text(STEPS)
    (tmp_path / "run.sh").write_text(script.replace("$PORT", str(free_port())).replace("PORT +", f"{free_port()} +"))
    done = up("bash run.sh")
    error = done.stderr[done.stderr.index("error: ") :]
    assert done.returncode == 1, done.stderr
    assert " trained alone: all 2 ranks of its process group were on this host" in error.splitlines()[0]
    assert line in error
    assert "leave out --nnodes" in error
    assert json.loads(next(tmp_path.glob("runs/*/outcome.json")).read_text())["cause"] == "trained-alone"


def test_a_standalone_launcher_in_a_script_is_named_and_ended(up, tmp_path):
    (tmp_path / "run.sh").write_text("torchrun --standalone --nproc_per_node=2 train.py")
    done = up("bash run.sh")
    assert done.returncode == 1, done.stderr
    words, _, end = done.stderr.partition("error: ")
    assert "wait for others that never come: run.sh:1: torchrun --standalone" in words
    assert "wait alone: run.sh:1: torchrun --standalone" in end
    assert "leave out --standalone there" in end


def test_a_program_with_its_own_environment_does_not_count_as_the_runs_training(up, tmp_path):
    (tmp_path / "step.py").write_text(STEPS + "import time; time.sleep(3)")
    (tmp_path / "run.sh").write_text("env -i PATH=$PATH torchrun --standalone step.py")
    done = up("bash run.sh")
    assert done.returncode == 1, done.stderr
    assert " trained alone: the program that it started is a world of this node alone" in done.stderr
    assert "run.sh:1: env -i" in done.stderr
    assert "leave out --standalone and let it keep its variables" in done.stderr


@pytest.mark.parametrize(("option", "code"), [("--standalone", 1), ("", 0)])
def test_a_launcher_with_its_own_pythonpath_is_compared_with_the_plan_too(up, tmp_path, option, code):
    (tmp_path / "step.py").write_text(STEPS + "import time; time.sleep(2)")
    (tmp_path / "run.sh").write_text(f"PYTHONPATH=. torchrun {option} step.py")
    done = up("bash run.sh")
    assert done.returncode == code, done.stderr
    assert ("run.sh:1: PYTHONPATH=. torchrun --standalone" in done.stderr) == bool(code)


def test_a_node_may_evaluate_in_its_own_world_in_addition_to_training(up, tmp_path):
    (tmp_path / "eval.py").write_text(EVALUATE)
    (tmp_path / "run.sh").write_text("torchrun --standalone --nnodes=1 eval.py\ntorchrun train.py")
    done = up("bash run.sh")
    assert done.returncode == 0, done.stderr
    assert "alone" not in done.stderr


def test_every_training_program_of_a_script_is_watched_not_only_the_first(up, tmp_path):
    """A program that does not train comes first; ranks of the second training program are watched like the first's."""
    (tmp_path / "step.py").write_text(STEPS)
    (tmp_path / "run.sh").write_text("python -c 'import torch'\ntorchrun step.py\ntorchrun step.py")
    done = up("bash run.sh")
    assert done.returncode == 0, done.stderr
    (run,) = tmp_path.glob("runs/20*")
    for rank in (0, 1):
        events = [json.loads(line) for line in (run / f"ranks/rank-{rank}.jsonl").read_text().splitlines()]
        assert len({event["pid"] for event in events if event["kind"] == "started"}) == 2
        assert [event["step"] for event in events if event["kind"] == "continues" and event.get("another")] == [0]
    assert "another program of the script trains" in done.stderr
    assert "no process of this rank" not in (run / "report.html").read_text()


def test_a_missing_program_is_named(up):
    done = up("no-such-program --x python train.py", workers="0")
    assert done.returncode == 2
    assert "no such program: no-such-program" in done.stderr
    assert "--script 'python train.py'" in done.stderr


@pytest.mark.parametrize("kind", ["PyTorchJob", "TrainJob"])
def test_the_agent_reads_what_kubeflow_gives_a_pod(up, kind, tmp_path):
    port = free_port()
    given = {"PET_RDZV_BACKEND": "c10d", "PET_RDZV_ENDPOINT": f"127.0.0.1:{port}", "PET_RDZV_ID": "job"}
    if kind == "TrainJob":
        given = {"PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(port)}
    pods = []
    for pod in ("1", "0"):
        (tmp_path / pod).mkdir()
        (tmp_path / pod / "train.py").write_text(TRAIN)
        place = {"PET_NODE_RANK": pod} if kind == "TrainJob" else {}
        variables = environment(PET_NNODES="2", PET_NPROC_PER_NODE="1", **given, **place)
        command = [FAB, "--search-root", HOME, "agent", "--", "train.py"]
        pods.append(
            subprocess.Popen(
                command, cwd=tmp_path / pod, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
            )
        )
    said = [pod.communicate(timeout=120)[0].decode() for pod in pods]
    assert [pod.returncode for pod in pods] == [0, 0], said
    assert all(any(f"rank {rank} of 2 sum 3.0" in text for text in said) for rank in range(2))
