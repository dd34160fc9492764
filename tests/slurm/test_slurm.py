"""Runs on a real Slurm: two nodes by srun, and a job from `muster export`. test_deploy.py tests preemption."""

import pytest

pytestmark = pytest.mark.torch
TRAIN = """
import os, torch
from torch.distributed import all_reduce, destroy_process_group, get_rank, get_world_size, init_process_group
init_process_group("gloo")
number = torch.tensor([1.0 + get_rank()])
all_reduce(number)
print("rank", get_rank(), "of", get_world_size(), "sum", number.item(), "on", os.environ["SLURMD_NODENAME"],
      "task", os.environ["SLURM_PROCID"])
destroy_process_group()
"""
STEPS = """
import os, time, torch
from torch import nn
from torch.distributed import destroy_process_group, get_rank, init_process_group
from torch.utils.data import TensorDataset
import muster
init_process_group("gloo")
torch.manual_seed(0)
x = torch.randn(640, 16)
model = nn.parallel.DistributedDataParallel(nn.Linear(16, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
training = muster.Training(save_every=10, model=model, optimizer=optimizer)
if get_rank() == 0:
    print("begins at", training.step, flush=True)
for batch, target in training.batches(TensorDataset(x, x.sum(1, keepdim=True)), batch=32, steps=60):
    loss = nn.functional.mse_loss(model(batch), target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    # Slurm may take its time to preempt the first start.
    time.sleep(0 if int(os.environ.get("SLURM_RESTART_COUNT") or 0) else 1)
if get_rank() == 0:
    print("done at", training.step, "sum", sum(p.sum().item() for p in model.parameters()), flush=True)
destroy_process_group()
"""


def test_srun_is_enough_and_rank_0_is_on_the_first_node(slurm, folder):
    slurm.write(f"{folder}/train.py", TRAIN)
    done = slurm.shell("srun -N2 --ntasks-per-node=1 muster agent --nproc 2 --script train.py", folder, 180)
    assert done.returncode == 0, done.stderr
    for rank in range(4):
        assert f"rank {rank} of 4 sum 10.0 on n{rank // 2 + 1} task {rank}" in done.stdout


def test_slurm_applies_an_exported_jobs_options_and_a_failed_setup_ends_it(slurm, folder):
    slurm.write(f"{folder}/train.py", 'import os; print("cpus", os.environ["SLURM_CPUS_PER_TASK"])')
    slurm.out("muster export --slurm='-p low --time 3:00 -c 3 --export=NONE' -- train.py >job.sbatch", folder)
    job = slurm.out("sbatch --parsable job.sbatch", folder)
    assert slurm.wait(job, "COMPLETED", "FAILED") == "COMPLETED"
    assert [slurm.job(job)[name] for name in ("Partition", "TimeLimit", "CPUs/Task")] == ["low", "00:03:00", "3"]
    assert "cpus 3" in slurm.out(f"cat slurm-{job}.out", folder)
    slurm.out("muster export --setup 'source venv/bin/activate' --script train.py >job.sbatch", folder)
    job = slurm.out("sbatch --parsable job.sbatch", folder)
    assert slurm.wait(job, "COMPLETED", "FAILED") == "FAILED"
    output = slurm.out(f"cat slurm-{job}.out", folder)
    assert "this line of --setup failed: source venv/bin/activate" in output
    assert "cpus" not in output


def test_a_cancelled_job_leaves_a_checkpoint_and_does_not_come_back(slurm, folder):
    slurm.write(f"{folder}/steps.py", STEPS)
    slurm.out("muster export --nodes 2 -- steps.py >job.sbatch", folder)
    job = slurm.out("sbatch --parsable job.sbatch", folder)
    slurm.until(lambda: "begins at 0" in slurm.shell(f"cat slurm-{job}.out", folder).stdout)
    slurm.out(f"scancel {job}")
    slurm.until(lambda: "stopped at step" in slurm.shell(f"cat slurm-{job}.out", folder).stdout)
    slurm.until(lambda: slurm.job(job)["JobState"] == "CANCELLED" and not slurm.out(f"squeue --noheader --job {job}"))
    assert slurm.job(job)["Restarts"] == "0"
    assert slurm.out("ls runs", folder) == f"slurm-{job}"
