"""What a script imports from Muster works with the libraries in the image, whatever state they are in."""

import importlib
import os
import runpy
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest

HOME = Path(__file__).resolve().parents[3]


@pytest.fixture
def library(monkeypatch):
    """Return a function that replaces a library's module and returns Muster's module that imports it."""

    def put(name, ours, **content):
        module = ModuleType(name)
        vars(module).update(content)
        monkeypatch.setitem(sys.modules, name.partition(".")[0], ModuleType(name.partition(".")[0]))
        monkeypatch.setitem(sys.modules, name, module)
        monkeypatch.delitem(sys.modules, ours, raising=False)
        return importlib.import_module(ours)

    yield put
    for ours in ("muster.lightning", "muster.transformers"):
        sys.modules.pop(ours, None)


def test_a_tensorboard_library_that_fails_to_import_costs_only_its_events(tmp_path):
    (tmp_path / "tensorboardX").mkdir()
    (tmp_path / "tensorboardX/__init__.py").write_text("raise TypeError('Descriptors cannot be created directly.')")
    code = "from muster.metrics import Metrics; Metrics(__import__('pathlib').Path('x')).add(1, loss=2.0)"
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HOME)])}
    subprocess.run([sys.executable, "-c", code], env=given, cwd=tmp_path, check=True, timeout=60)
    assert '"loss": 2.0' in (tmp_path / "x/metrics.jsonl").read_text()


SCRIPT = """
import torch, muster
import torch.distributed as dist
dist.init_process_group("gloo")
torch.manual_seed(0)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.1)
training = muster.Training(model=model, optimizer=optimizer)
for (x,) in training.batches(torch.utils.data.TensorDataset(torch.ones(8, 1)), batch=4, steps=3):
    model(x).sum().backward()
    optimizer.step()
print("ended", training.step, flush=True)
dist.destroy_process_group()
"""


@pytest.mark.long
@pytest.mark.torch
def test_ranks_exchange_their_state_without_numpy(tmp_path):
    (tmp_path / "numpy.py").write_text("raise ModuleNotFoundError('No module named numpy', name='numpy')")
    (tmp_path / "train.py").write_text(SCRIPT)
    given = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(HOME)])}
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "train.py"]
    for _ in range(2):  # the second finds the checkpoint of the first
        done = subprocess.run(command, env=given, cwd=tmp_path, capture_output=True, text=True, timeout=240)
        assert sorted(done.stdout.split()) == ["3", "3", "ended", "ended"], done.stderr  # two ranks share the pipe


@pytest.mark.torch
def test_lightning_in_a_thread_as_under_ray_keeps_the_signal_handlers(library):
    ours = library("lightning.pytorch.callbacks", "muster.lightning", Callback=object, ModelCheckpoint=Keeps)
    before, begun = signal.getsignal(signal.SIGTERM), []
    stop, trainer = ours.OrderlyStop(), SimpleNamespace(global_step=3)
    thread = threading.Thread(target=lambda: begun.append(stop.on_train_start(trainer, None)))
    thread.start()
    thread.join()
    assert begun == [None]
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.torch
def test_a_checkpoint_that_a_kill_left_incomplete_is_skipped(library, tmp_path, monkeypatch):
    stop = library("transformers", "muster.transformers", TrainerCallback=object).OrderlyStop()
    monkeypatch.chdir(tmp_path)  # an earlier Trainer's output_dir; this Trainer has not yet given its own
    (tmp_path / "checkpoint-7").mkdir()
    (tmp_path / "checkpoint-7/trainer_state.json").write_text("{}")
    assert stop.newest is None
    stop.on_init_end(SimpleNamespace(output_dir=str(tmp_path / "out")), None, None)
    assert stop.newest is None
    for name in ("checkpoint-9", "checkpoint-16", "checkpoint-16-old", "checkpoint-100"):
        (tmp_path / "out" / name).mkdir(parents=True)
        (tmp_path / "out" / name / "model.safetensors").touch()
    for name in ("checkpoint-9", "checkpoint-16", "checkpoint-16-old"):
        (tmp_path / "out" / name / "trainer_state.json").write_text('{"log_history": [{"loss": NaN}]}')
    for name, cut in (("checkpoint-32", ""), ("checkpoint-48", '{"log_history": [{"loss": 1.0}')):
        (tmp_path / "out" / name).mkdir()
        (tmp_path / "out" / name / "trainer_state.json").write_text(cut)
    assert stop.newest == str(tmp_path / "out/checkpoint-16")


@pytest.mark.torch
def test_the_hf_trainer_example_resumes_from_its_newest_whole_checkpoint(library, tmp_path, monkeypatch):
    """transformers' get_last_checkpoint takes the folder with the highest number, even if a kill left it incomplete."""
    resumed, made = [], []

    class Trainer:
        def __init__(self, args, callbacks, **_):
            made.extend(each.on_init_end(args, None, None) for each in callbacks if hasattr(each, "on_init_end"))

        def train(self, resume_from_checkpoint):
            resumed.append(resume_from_checkpoint)

    names = ("GPT2Config", "GPT2LMHeadModel", "TrainerControl", "TrainerState")
    found = {"TrainerCallback": object, "TrainingArguments": SimpleNamespace, "Trainer": Trainer}
    library("transformers", "muster.transformers", **dict.fromkeys(names, lambda *_, **__: None), **found)
    utils = ModuleType("transformers.trainer_utils")
    utils.get_last_checkpoint = lambda folder: f"{folder}/checkpoint-32"
    monkeypatch.setitem(sys.modules, "transformers.trainer_utils", utils)
    monkeypatch.chdir(tmp_path)
    for step, state in ((16, "{}"), (32, None)):
        (tmp_path / f"checkpoints/checkpoint-{step}").mkdir(parents=True)
        if state:
            (tmp_path / f"checkpoints/checkpoint-{step}/trainer_state.json").write_text(state)
    monkeypatch.setattr(sys, "argv", ["hf_trainer.py"])
    runpy.run_path(str(HOME / "examples/hf_trainer.py"), run_name="__main__")
    assert resumed == ["checkpoints/checkpoint-16"]


class Keeps:
    """The attributes of a ModelCheckpoint that Muster reads."""

    last_model_path = ""

    def __init__(self, best="", alone=False):
        self.best_model_path, self.save_weights_only = best, alone
        self.best_k_models = {}


@pytest.mark.torch
def test_lightnings_newest_checkpoint_replaces_that_of_an_earlier_stop(library, tmp_path):
    """After stop, resume and kill, a run began again at the stop, hundreds of steps before its newest checkpoint."""
    ours = library("lightning.pytorch.callbacks", "muster.lightning", Callback=object, ModelCheckpoint=Keeps)
    stop, kept = ours.OrderlyStop(tmp_path / "checkpoints/stopped.ckpt"), tmp_path / "logs/checkpoints"
    kept.mkdir(parents=True)
    (kept / "alone.ckpt").write_text("of no optimizer")
    keeps, weights = Keeps(), Keeps(str(kept / "alone.ckpt"), alone=True)
    # Lightning's OnExceptionCheckpoint is also a checkpoint callback, but it keeps no checkpoint that it could name.
    about = {"accumulate_grad_batches": 1, "is_global_zero": True, "checkpoint_callbacks": [weights, object(), keeps]}
    trainer = SimpleNamespace(global_step=0, **about)
    stop._step, stop._agreement = 0, SimpleNamespace(all_stop=lambda: False, settle=lambda: None)

    def saves(step, age_s, then=stop.on_train_batch_end):
        stop.on_save_checkpoint(trainer, None, {})
        (kept / f"step={step}.ckpt").write_text(str(step))
        os.utime(kept / f"step={step}.ckpt", (time.time() - age_s,) * 2)
        keeps.best_model_path = str(kept / f"step={step}.ckpt")
        then(trainer, None)

    saves(10, 50.0)
    assert stop.newest is None, "nobody has stopped"
    stop.path.parent.mkdir()
    stop.path.write_text("20")
    os.utime(stop.path, (time.time() - 40.0,) * 2)
    for step, age_s, newest in ((15, 45.0, "20"), (30, 30.0, "30"), (40, 20.0, "40"), (40, 20.0, "40")):
        saves(step, age_s)
        assert (stop.newest.read_text(), len(list(stop.path.parent.iterdir()))) == (newest, 1)
    saves(50, 15.0, stop.on_train_end)
    assert stop.newest.read_text() == "50", "the last of the training comes after its last batch"
    trainer.is_global_zero = False
    saves(60, 10.0)
    assert stop.newest.read_text() == "50", "one rank writes it"
