"""The graceful stop in Lightning and the Hugging Face Trainer: one of two ranks gets SIGTERM, and both resume later.

pip unpacks 200 MB of packages for this in one minute; torch comes from this environment. Each test starts its ranks
once or three times. Most of the time goes into imports: ten seconds a start if two cores are busy.
"""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lab.ports import free_port
from lab.waiting import until
from tests import installed
from tests.dist.conftest import HOME, environment

pytestmark = pytest.mark.torch
FAB = Path(sys.executable).with_name("fab")
# As in requirements/bench.txt.
PACKAGES = ("lightning==2.6.6", "transformers==5.23.0", "accelerate==1.15.0")
STEPS = 40
# All samples are equal, so that the weights depend only on the number of steps. Lost gradients of half a step, or an
# optimizer that starts anew, change them.
COMMON = """
import hashlib, os, sys, time, torch
from pathlib import Path
steps, pause = int(sys.argv[1]), float(sys.argv[2])
def says(word, step, model):
    weights = b"".join(part.detach().numpy().tobytes() for part in model.parameters())
    print(word, step, hashlib.sha256(weights).hexdigest(), flush=True)
torch.manual_seed(0)
"""
LIGHTNING = (
    COMMON
    + """
import lightning
from muster.lightning import OrderlyStop

class Model(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def training_step(self, batch, index):
        return (self.layer(batch[0]) - 1).square().mean()
    def train_dataloader(self):
        data = torch.utils.data.TensorDataset(torch.ones(160, 2))
        return torch.utils.data.DataLoader(data, batch_size=4)
    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), 0.01)

class Says(lightning.Callback):
    def on_train_start(self, trainer, module):
        says("begins", trainer.global_step, module)
    def on_train_batch_end(self, trainer, module, *_):
        time.sleep(pause)
        says("step", trainer.global_step, module)

stop, nodes = OrderlyStop(), int(os.environ.get("NNODES", "1"))
trainer = lightning.Trainer(
    accelerator="cpu", strategy="ddp", num_nodes=nodes, devices=2 // nodes, max_steps=steps, accumulate_grad_batches=2,
    logger=False, enable_checkpointing=False, enable_progress_bar=False, min_epochs=5, callbacks=[Says(), stop],
)
model = Model()
trainer.fit(model, ckpt_path=stop.newest)
says("ends", trainer.global_step, model)
"""
)
TRANSFORMERS = (
    COMMON
    + """
from transformers import Trainer, TrainerCallback, TrainingArguments
from muster.transformers import OrderlyStop

class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(2, 1)
    def forward(self, x, labels=None):
        return {"loss": (self.layer(x) - 1).square().mean()}

class Says(TrainerCallback):
    def on_train_begin(self, args, state, control, model=None, **_):
        says("begins", state.global_step, model)
    def on_step_end(self, args, state, control, model=None, **_):
        time.sleep(pause)
        says("step", state.global_step, model)

args = TrainingArguments(
    "out", use_cpu=True, max_steps=steps, per_device_train_batch_size=4, gradient_accumulation_steps=2,
    eval_strategy="epoch", save_strategy="no", logging_strategy="no", report_to=[], disable_tqdm=True,
)
model, data = Model(), [{"x": torch.ones(2), "labels": 0}] * 160
stop = OrderlyStop()
trainer = Trainer(model, args, train_dataset=data, eval_dataset=data, callbacks=[Says(), stop])
trainer.train(resume_from_checkpoint=stop.newest)
says("ends", trainer.state.global_step, model)
"""
)
SCRIPTS = {"lightning": LIGHTNING, "transformers": TRANSFORMERS}


@pytest.fixture(scope="module")
def packages(tmp_path_factory):
    """The folder of programs of an environment with the frameworks."""
    return installed.beside(tmp_path_factory.mktemp("frameworks") / "venv", *PACKAGES)


class Ranks:
    """Two ranks of a script in `folder`, started as torchrun starts them."""

    def __init__(self, python, folder, script, pause=0.0):
        folder.mkdir(exist_ok=True)
        (folder / "train.py").write_text(script)
        self.said, port = [folder / f"said-{rank}" for rank in range(2)], free_port()
        self.processes = []
        for rank, said in enumerate(self.said):
            place = {"RANK": rank, "LOCAL_RANK": rank, "WORLD_SIZE": 2, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
            variables = environment(PYTHONPATH=str(HOME), **{name: str(value) for name, value in place.items()})
            with said.open("w") as file:
                command = [str(python), "train.py", str(STEPS), str(pause)]
                self.processes.append(
                    subprocess.Popen(command, cwd=folder, env=variables, stdout=file, stderr=subprocess.STDOUT)
                )

    def kill(self):
        for process in self.processes:
            process.kill()
            process.wait()

    def codes(self):
        return [process.wait(timeout=120) for process in self.processes]

    def lines(self, word):
        """The lines of each rank that begin with `word`: the step, and a digest of its weights."""
        return [
            [line.split()[1:] for line in path.read_text().splitlines() if line.startswith(f"{word} ")]
            for path in self.said
        ]

    def all_said(self):
        return "".join(path.read_text() for path in self.said)


@pytest.fixture
def start(packages):
    """begin(*words): start Ranks that can import the frameworks; they are killed when the test ends."""
    started = []

    def begin(*words, **named):
        started.append(Ranks(packages / "python", *words, **named))
        return started[-1]

    yield begin
    for ranks in started:
        ranks.kill()


@pytest.mark.parametrize("framework", SCRIPTS)
def test_sigterm_to_one_rank_ends_both_at_one_step_and_they_resume_to_the_same_weights(start, tmp_path, framework):
    whole = start(tmp_path / "whole", SCRIPTS[framework])
    assert whole.codes() == [0, 0], whole.all_said()
    cut = start(tmp_path / "cut", SCRIPTS[framework], 0.05)
    until(lambda: any(step == "3" for step, _ in cut.lines("step")[1]), "rank 1 at step 3", 60)
    cut.processes[1].send_signal(signal.SIGTERM)
    assert cut.codes() == [75, 75], cut.all_said()
    first, second = (said[-1] for said in cut.lines("step"))
    assert first == second
    assert 3 <= int(first[0]) < STEPS
    resumed = start(tmp_path / "cut", SCRIPTS[framework])
    assert resumed.codes() == [0, 0], resumed.all_said()
    assert resumed.lines("begins") == [[first], [first]]
    assert resumed.lines("ends") == whole.lines("ends") != [[], []]


@pytest.mark.parametrize("framework", SCRIPTS)
def test_a_run_that_is_asked_to_stop_is_stopped_and_not_done(packages, tmp_path, framework):
    (tmp_path / "train.py").write_text(SCRIPTS[framework])
    line = [FAB, "--search-root", HOME, "up", "--backend", "processes", "--workers", "1", "--run", "asked"]
    libraries = next(packages.parent.glob("lib/python*/site-packages"))
    path = f"{packages}:{Path(sys.executable).parent}:{os.environ['PATH']}"
    run = subprocess.Popen(
        [*line, "--requirements", "no", "--script", f"train.py {STEPS} 0.1"],
        cwd=tmp_path,
        env={**os.environ, "PATH": path, "PYTHONPATH": f"{HOME}:{libraries}"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    said = tmp_path / "runs/asked/logs/rank-1.log"
    until(lambda: said.exists() and "step 3 " in said.read_text(), "rank 1 at step 3", 90)
    run.send_signal(signal.SIGINT)
    words, _ = run.communicate(timeout=90)
    assert run.returncode == 75, words
    assert json.loads((tmp_path / "runs/asked/outcome.json").read_text())["verdict"] == "stopped"
    assert "ends " not in said.read_text(), "what follows a training that is done"
    places = {"lightning": "checkpoints/stopped.ckpt", "transformers": "out/checkpoint-*/model.safetensors"}
    assert list((tmp_path / "runs/asked/work").glob(places[framework]))
