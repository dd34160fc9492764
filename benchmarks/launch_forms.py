"""The ways to launch a script, on two hosts: they run right, or are refused with the command that works.

    python -m benchmarks.launch_forms [--quick]

Each form is given to `fab deploy` on two hosts of a rack. It runs right if exactly the ranks that are due met, on both
hosts. A refusal counts if it names the word and the command in its hint is taken; a script that cannot join the hosts
counts if its run fails and says so. Beside it the plain launcher: the command of somebody who types it on each host,
with the rank and the first host's address by heart, in the same image without Muster.
"""

from __future__ import annotations

import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import nodes, racks
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME
from deploy.core.errors import FAILED, USAGE, DeployError
from deploy.image.model import tag_of
from deploy.job.script import read

FAB, IMAGE, PORT = HOME / ".venv" / "bin" / "fab", "muster-examples:cpu", 29655
# What a push calls it on the hosts.
THERE = tag_of(IMAGE, None)
SUM = """
    number = torch.ones(1)
    dist.all_reduce(number)
    print(f"met rank-{dist.get_rank()}-of-{int(number)}", *sys.argv[1:], flush=True)
    dist.destroy_process_group()
"""
HEAD = "#!/usr/bin/env python3\nimport os, sys, torch, torch.distributed as dist\nif __name__ == '__main__':\n"
JOIN = "    dist.init_process_group('gloo')"
STYLED = "    dist.init_process_group('gloo', rank=int(os.environ['%s']), world_size=int(os.environ['%s']))"
SPAWN = """import argparse, sys, torch, torch.distributed as dist, torch.multiprocessing as mp
def work(local, asked):
    rank, world = asked.rank * 2 + local, asked.world_size * 2
    dist.init_process_group("gloo", init_method=asked.dist_url, rank=rank, world_size=world)
    number = torch.ones(1)
    dist.all_reduce(number)
    print(f"met rank-{dist.get_rank()}-of-{int(number)}", flush=True)
    dist.destroy_process_group()
if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rank", type=int, default=0)
    parser.add_argument("--world-size", type=int, default=1)
    parser.add_argument("--dist-url", default="tcp://localhost:29778")
    mp.spawn(work, args=(parser.parse_args(),), nprocs=2)
"""
PARALLEL = """import torch
model = torch.nn.DataParallel(torch.nn.Linear(2, 1))
model(torch.ones(4, 2)).sum().backward()
torch.optim.SGD(model.parameters(), 0.1).step()
"""
LIGHTNING = """import os, torch, lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
    def on_train_end(self):
        print(f"met rank-{self.global_rank}-of-{self.trainer.world_size}", flush=True)
data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)
lightning.Trainer(num_nodes=2, devices=1, accelerator="cpu", strategy="ddp", max_epochs=1, logger=False,
                  enable_checkpointing=False, enable_progress_bar=False).fit(Model(), data)
"""
# The same model, whose Trainer a LightningCLI makes from a file.
CLI = (
    LIGHTNING.partition("data = ")[0]
    + """    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)
from lightning.pytorch.cli import LightningCLI
if __name__ == "__main__":
    LightningCLI(Model)
"""
)
CONFIG = """trainer:
  num_nodes: 2
  devices: 1
  accelerator: cpu
  strategy: ddp
  max_epochs: 1
  logger: false
  enable_checkpointing: false
  enable_progress_bar: false
"""
FILES = {
    "train.py": HEAD + JOIN + SUM,
    "pkg/train.py": HEAD + JOIN + SUM,
    "pkg/__init__.py": "",
    "my-train": HEAD + JOIN + SUM,
    "old.py": HEAD + "    import argparse; parser = argparse.ArgumentParser(); parser.add_argument('--local_rank', "
    "required=True); parser.parse_args()\n" + JOIN + SUM,
    "new.py": HEAD + "    assert sys.argv[1] == '--local-rank=' + os.environ['LOCAL_RANK']\n" + JOIN + SUM,
    "slurm.py": HEAD + STYLED % ("SLURM_PROCID", "SLURM_NTASKS") + SUM,
    "mpi.py": HEAD + STYLED % ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE") + SUM,
    "run.sh": "torchrun --nproc-per-node 2 train.py\n",
    "plain.sh": "python train.py\n",
    "spawn.py": SPAWN,
    "parallel.py": PARALLEL,
    "light.py": LIGHTNING,
    "main.py": CLI,
    "c.yaml": CONFIG,
}
ENV = "MASTER_ADDR={master} MASTER_PORT={port} WORLD_SIZE=2 RANK={rank} LOCAL_RANK=0 NODE_RANK={rank} "
HAND = "--nnodes 2 --node-rank {rank} --master-addr {master} --master-port {port}"
_OLD = "python -m torch.distributed.launch"
_EACH = "spawn.py --rank {node_rank} --world-size {nodes} --dist-url tcp://{master}:{port}"
# The form, the words for `fab deploy`, how many ranks are due, and the plain command on each host.
RUN = (
    ("python train.py, MASTER_ADDR by hand", ["--script", "python train.py"], 2, ENV + "python train.py"),
    ("-m pkg.train", ["--script", "-m pkg.train"], 2, ENV + "python -m pkg.train"),
    ("torchrun", ["--script", "torchrun --nproc-per-node 2 train.py"], 4,
     f"torchrun --nproc-per-node 2 {HAND} train.py"),
    ("torchrun with etcd", ["--script", "torchrun --rdzv-backend etcd-v2 --rdzv-endpoint e:2379 train.py"], 2,
     "torchrun --nnodes 2 --rdzv-backend etcd-v2 --rdzv-endpoint {master}:2379 train.py"),
    ("torch.distributed.launch, --local-rank", ["--script", f"{_OLD} --nproc_per_node 2 new.py"], 4,
     f"{_OLD} --nproc-per-node 2 {HAND} new.py"),
    ("... --local_rank", ["--script", f"{_OLD} --nproc_per_node 2 old.py"], 4,
     f"{_OLD} --nproc-per-node 2 {HAND} old.py"),
    ("accelerate launch", ["--script", "accelerate launch train.py"], 2, "accelerate launch --cpu --num_machines 2 "
     "--num_processes 2 --machine_rank {rank} --main_process_ip {master} --main_process_port {port} train.py"),
    ("a program on each rank", ["--script", "torchrun --no-python ./my-train"], 2,
     f"torchrun --no-python --nproc-per-node 1 {HAND} ./my-train"),
    ("bash run.sh, torchrun in it", ["--nproc", "2", "--script", "bash run.sh"], 4, "PET_NNODES=2 PET_NODE_RANK={rank} "
     "PET_MASTER_ADDR={master} PET_MASTER_PORT={port} bash run.sh"),
    ("bash plain.sh, python in it", ["--script", "bash plain.sh"], 2, ENV + "bash plain.sh"),
    ("mp.spawn by --each", ["--each", _EACH], 4,
     "python spawn.py --rank {rank} --world-size 2 --dist-url tcp://{master}:{port}"),
    ("a script of Slurm's", ["--style", "slurm", "--script", "slurm.py"], 2, "srun python slurm.py"),
    ("a script of MPI's", ["--style", "mpi", "--script", "mpi.py"], 2, "mpirun python mpi.py"),
    ("a LightningCLI", ["--script", "python main.py fit --config c.yaml"], 2,
     ENV + "python main.py fit --config c.yaml"),
    ("Lightning with num_nodes", ["--script", "light.py"], 2, ENV + "python light.py"),
)  # fmt: skip
REFUSED = (
    "srun python train.py",
    "mpirun -np 2 python train.py",
    "MASTER_ADDR=a RANK=0 python train.py",
    "lightning run train.py",
    "fabric run --devices 2 train.py",
    "deepspeed --hostfile hosts train.py",
)
ALONE = ("parallel.py",)


@dataclass(frozen=True)
class _Project:
    folder: Path
    rack: racks.Rack


def measure(quick: bool) -> dict[str, Any]:
    """How many forms run right or are refused with what works; the plain launcher beside those that run."""
    run = RUN[::5] if quick else RUN
    subprocess.run([HOME / "images" / "packages.sh", HOME / "examples" / "requirements.txt", IMAGE], check=True)
    with nodes.scratch() as scratch, racks.rack(2, "classic") as rack:
        project = _Project(_written(scratch / "project"), rack)
        subprocess.run([FAB, "push", "--hosts", ",".join(rack.names), "--image", IMAGE], cwd=HOME, check=True)
        ran, by_hand = dict[str, str](), dict[str, str]()
        for form, words, ranks, command in run:
            ran[form] = _deployed(project, words, ranks)
            by_hand[form] = _by_hand(project, command, ranks)
            say(f"{form}: {ran[form]}; by hand: {by_hand[form]}")
        lonely = {form: _lonely(project, form) for form in ALONE}
        refused = {form: _refused(form, project.folder) for form in REFUSED}
    verdicts = {**ran, **lonely, **refused}
    right = sum(words.startswith("right") for words in verdicts.values())
    hand = sum(words.startswith("right") for words in by_hand.values())
    rows = [
        Row("ways to launch, on two hosts: run right, or refused with what works", f"{right} of {len(verdicts)}",
            f"plain launchers, typed on each host: {hand} of {len(by_hand)}", "", "all", right == len(verdicts)),
    ]  # fmt: skip
    notes = [f"{form}: {words}" for form, words in verdicts.items()]
    notes += [f"by hand: {form}: {words}" for form, words in by_hand.items() if not words.startswith("right")]
    return result(rows, notes)


def _written(folder: Path) -> Path:
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
    return folder


def _deploy(project: _Project, words: list[str]) -> subprocess.CompletedProcess[str]:
    line = [FAB, "--search-root", HOME, "deploy", "--hosts", ",".join(project.rack.names), "--image", IMAGE]
    line += ["--rank", "all", "--requirements", "no", *words]
    return subprocess.run(line, cwd=project.folder, capture_output=True, text=True, timeout=600)


def _deployed(project: _Project, words: list[str], ranks: int) -> str:
    done = _deploy(project, words)
    if done.returncode:
        return f"code {done.returncode}: {_error(done.stderr)}"
    return _met(done.stdout, ranks)


def _met(text: str, ranks: int) -> str:
    met = sorted(re.findall(r"met (rank-\d+-of-\d+)", text))
    due = sorted(f"rank-{rank}-of-{ranks}" for rank in range(ranks))
    return "right: runs" if met == due else f"met {met} instead of {due}"


def _by_hand(project: _Project, command: str, ranks: int) -> str:
    """The command in a container of the same image on each host, without Muster."""
    rack = project.rack
    # By its interface: what `hostname -I` names first may be the bridge of the host's own engine.
    master = rack.on(rack.names[0], "ip -4 -o address show dev eth0 | awk '{print $4}'").partition("/")[0]

    def on(rank: int) -> str:
        typed = command.format(rank=rank, master=master, port=PORT)
        inside = f"mkdir /tmp/w && cd /tmp/w && tar x && export GLOO_SOCKET_IFNAME=eth0 && timeout 150 env {typed}"
        line = ["docker", "run", "--rm", "-i", "--network=host", "--shm-size=256m", "--entrypoint", "bash", THERE, "-c"]
        tar = subprocess.run(["tar", "c", "-C", project.folder, "."], capture_output=True, check=True).stdout
        words = [*rack.ssh(rack.names[rank]), shlex.join([*line, inside])]
        done = subprocess.run(words, input=tar, capture_output=True, timeout=240)
        return done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")

    with ThreadPoolExecutor(2) as threads:
        texts = list(threads.map(on, range(2)))
    met = _met("\n".join(texts), ranks)
    return met if met.startswith("right") else (texts[0].strip().splitlines() or ["nothing"])[-1][:120]


def _lonely(project: _Project, form: str) -> str:
    """A script that cannot join the hosts: its run fails, and says that its ranks trained alone."""
    done = _deploy(project, ["--script", form])
    said = "trained alone" in done.stderr
    return "right: fails as `trained alone`" if done.returncode == FAILED and said else f"code {done.returncode}"


def _refused(form: str, folder: Path) -> str:
    try:
        read(form, folder)
    except DeployError as refusal:
        offered, less = re.search(r"--script (.+)", refusal.hint), re.search(r"leave out (\S+)", refusal.hint)
        if offered:
            instead = shlex.split(offered[1].partition(";")[0])[0]
        else:
            instead = re.sub(rf"{less[1]} \S+ ", "", form) if less else form
        taken = instead != form and bool(read(instead, folder).words)
        return f"right: refused, `{instead}` works" if refusal.code == USAGE and taken else f"{refusal.message}"
    return "not refused"


def _error(text: str) -> str:
    lines = [line for line in text.splitlines() if line.startswith("error")] or text.strip().splitlines() or ["nothing"]
    return lines[0][:160]


if __name__ == "__main__":
    alone(measure, __doc__)
