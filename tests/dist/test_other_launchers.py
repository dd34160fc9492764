"""The launchers of DeepSpeed, Accelerate and Lightning, as pip installs them: two nodes train as one."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests import installed
from tests.dist.test_launchers import TRAIN

pytestmark = pytest.mark.torch
HOME = Path(__file__).resolve().parents[2]
FAB = Path(sys.executable).with_name("fab")
PACKAGES = ("deepspeed==0.19.8", "accelerate==1.15.0", "lightning==2.6.6", "jsonargparse[signatures]==4.53.0")
MODEL = """
import torch, lightning
class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        return self.layer(batch[0]).sum()
    def train_dataloader(self):
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.ones(8, 2)), batch_size=2)
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), 0.1)
    def on_train_end(self):
        number = self.all_gather(torch.tensor(1.0 + self.global_rank)).sum().item()
        print("rank", self.global_rank, "of", self.trainer.world_size, "sum", number)
"""
TRAINER = "accelerator='cpu', strategy='ddp', max_epochs=1, logger=False, enable_checkpointing=False"
# On CPUs, Accelerate forms a group only if ACCELERATE_USE_CPU is set, which Muster does.
PLAIN = """
import torch, accelerate
one = accelerate.Accelerator()
number = one.reduce(torch.tensor(1.0 + one.process_index), "sum").item()
print("rank", one.process_index, "of", one.num_processes, "sum", number)
"""
SCRIPTS = {
    "train.py": TRAIN,
    "plain.py": PLAIN,
    "run.sh": "torchrun plain.py\n",
    "other.sh": "accelerate launch --num_processes 2 plain.py\n",
    "light.py": f"{MODEL}\nlightning.Trainer(num_nodes=2, devices=1, {TRAINER}).fit(Model())\n",
    "main.py": f"{MODEL}\nfrom lightning.pytorch.cli import LightningCLI\n"
    f"LightningCLI(Model, trainer_defaults=dict(devices=1, {TRAINER}))\n",
}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder of programs of an environment with these packages; torch comes from this environment."""
    return installed.beside(tmp_path_factory.mktemp("launchers") / "venv", *PACKAGES)


@pytest.mark.parametrize(
    "command",
    [
        "deepspeed train.py",
        "accelerate launch train.py",
        "plain.py",
        "bash run.sh",
        "bash other.sh",
        "light.py",
        "python main.py fit --trainer.num_nodes 2",
    ],
)
def test_a_launcher_of_another_library_trains_on_two_nodes_as_one(packages, command, tmp_path):
    for name, text in SCRIPTS.items():
        (tmp_path / name).write_text(text)
    line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--workers", "1", "--rank", "all"]
    path = f"{packages}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    libraries = next(packages.parent.glob("lib/python*/site-packages"))
    done = subprocess.run(
        [*line, "--requirements", "no", "--script", command],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": f"{HOME}:{libraries}"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert all(f"rank {rank} of 2 sum 3.0" in done.stdout for rank in range(2))
