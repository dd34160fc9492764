"""A plain loop with `muster.Training` continues as if nothing had ended it, and refuses what it cannot save."""

import itertools
import json
import signal
import threading
import warnings
from types import SimpleNamespace

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.utils.data import DataLoader, IterableDataset, TensorDataset

import muster
from muster.checkpoint import trained_parts
from muster.errors import CheckpointError, Refused, TrainError

SAMPLES = 50


@pytest.fixture(autouse=True)
def signals():
    """Restore the signal handlers of the process that runs the tests."""
    before = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def build(folder, **more):
    """Return a model with dropout, and the training of it, its optimizer and its scheduler in `folder`."""
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(1, 8), nn.Dropout(0.2), nn.Linear(8, 1))
    optimizer = torch.optim.AdamW(model.parameters())
    scheduler = torch.optim.lr_scheduler.MultiStepLR(optimizer, [5, 9])
    options = {"save_every": 4, **more}
    return model, muster.Training(folder, model=model, optimizer=optimizer, scheduler=scheduler, **options)


def data(samples=SAMPLES):
    return TensorDataset(torch.arange(float(samples)).unsqueeze(1))


def train(folder, steps, fails_at=None, **more):
    """Train; return the weights and the samples taken. Raises KeyError in the middle of step `fails_at`."""
    model, training = build(folder, **more)
    parts_of = training._parts
    taken = []
    batches = training.batches(data(), batch=8, steps=steps)
    for (x,) in batches:
        if training.step == fails_at:
            batches.close()  # as happens when the process ends
            raise KeyError(fails_at)
        loss = (model(x) - x).square().mean()
        parts_of["optimizer"].zero_grad()
        loss.backward()
        parts_of["optimizer"].step()
        parts_of["scheduler"].step()
        training.log(loss=loss)
        taken.append(x.flatten().int().tolist())
    return [parameter.detach().clone() for parameter in model.parameters()], taken


def test_a_killed_loop_continues_bit_for_bit_and_repeats_no_sample(tmp_path):
    whole, samples = train(tmp_path / "whole", 15)
    with pytest.raises(KeyError):
        train(tmp_path / "cut", 15, fails_at=9)
    resumed, rest = train(tmp_path / "cut", 15)
    assert rest == samples[8:]
    assert all(torch.equal(one, other) for one, other in zip(whole, resumed, strict=True))
    first_epoch = list(itertools.chain.from_iterable(samples))[:SAMPLES]
    assert sorted(first_epoch) == list(range(SAMPLES))


class Noisy(TensorDataset):
    """A data set that draws a random number for each sample."""

    def __getitem__(self, index):
        return super().__getitem__(index)[0] + torch.rand(())


def test_random_numbers_of_loaders_differ_per_epoch_and_survive_a_resume(tmp_path):
    def taken(folder, *epochs):
        _, training = build(tmp_path / folder)
        noisy = Noisy(torch.zeros(8))
        return [x.tolist() for each in epochs for x in training.batches(noisy, batch=4, epochs=each, workers=1)]

    first, second, third = taken("whole", 1, 2, 3)[::2]
    assert len({*first, *second, *third}) == 12
    taken("cut", 1)
    assert taken("cut", 2, 3)[::2] == [second, third]


def test_a_loop_that_has_done_its_steps_does_nothing_until_it_is_given_more(tmp_path):
    train(tmp_path, 6)
    assert train(tmp_path, 6)[1] == []
    assert len(train(tmp_path, 10)[1]) == 4


def test_a_loop_in_two_parts_takes_the_same_samples_as_in_one(tmp_path):
    _, whole = build(tmp_path / "whole")
    _, pieces = build(tmp_path / "pieces")
    samples = [x.tolist() for (x,) in whole.batches(data(), batch=8, steps=9)]
    assert samples == [x.tolist() for steps in (4, 9) for (x,) in pieces.batches(data(), batch=8, steps=steps)]


def test_epochs_are_counted_in_samples_whatever_the_batch(tmp_path):
    _, training = build(tmp_path)
    assert len(list(training.batches(data(), batch=8, epochs=1))) == 7
    assert (training.step, training.epoch) == (7, 1)
    _, training = build(tmp_path)
    assert training.epoch == 1
    assert len(list(training.batches(data(), batch=8, epochs=2))) == 6
    assert len(list(training.batches(data(), batch=16, epochs=3))) == 3, "after 104 samples, as on more ranks"
    assert len(list(training.batches(data(), batch=4, epochs=4))) == 12, "after 152 samples, as on fewer"
    with pytest.raises(Refused, match="steps or epochs"):
        next(training.batches(data(), batch=8))


def test_the_body_runs_for_each_micro_batch_and_the_step_counts_once(tmp_path):
    _, training = build(tmp_path)
    sizes = [len(x) for (x,) in training.batches(data(), batch=9, steps=2, micro_batches=2)]
    assert (sizes, training.step) == ([4, 5, 4, 5], 2)


def test_a_signal_ends_the_loop_with_a_checkpoint_and_code_75(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_OUTCOME_DIR", raising=False)
    _, training = build(tmp_path, save_every=0)
    batches = training.batches(data(), batch=8, steps=100)
    for _ in itertools.islice(batches, 3):
        if training.step == 2:
            signal.raise_signal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        next(batches)
    assert end.value.code == 75
    assert build(tmp_path)[1].step == 3


def test_each_of_two_trainings_in_a_script_hears_a_signal(tmp_path, monkeypatch):
    monkeypatch.delenv("MUSTER_OUTCOME_DIR", raising=False)
    trainings = [build(tmp_path / name)[1] for name in "ab"]
    for training in trainings:
        batches = training.batches(data(), batch=8, steps=5)
        next(batches)
        signal.raise_signal(signal.SIGTERM)
        with pytest.raises(SystemExit):
            next(batches)


def test_the_scripts_own_signal_handler_stays(tmp_path):
    def own(*_):
        pass

    signal.signal(signal.SIGTERM, own)
    build(tmp_path)
    assert signal.getsignal(signal.SIGTERM) is own


def test_a_training_outside_the_main_thread_listens_to_no_signal(tmp_path):
    built = []
    thread = threading.Thread(target=lambda: built.append(build(tmp_path)))
    thread.start()
    thread.join()
    assert built


def test_a_damaged_checkpoint_is_named_and_the_one_before_is_taken(tmp_path, capsys):
    train(tmp_path, 8)
    state = tmp_path / "checkpoints/step-00000008/state.pt"
    damaged = bytearray(state.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    state.write_bytes(damaged)
    assert build(tmp_path)[1].step == 4
    assert "step-00000008: state.pt was altered" in capsys.readouterr().err


def test_if_every_checkpoint_is_damaged_training_does_not_silently_start_over(tmp_path):
    train(tmp_path, 8)
    for state in tmp_path.glob("checkpoints/*/state.pt"):
        state.write_bytes(b"")
    with pytest.raises(CheckpointError, match="each checkpoint there is damaged") as refused:
        build(tmp_path)
    assert "step-00000004" in refused.value.message
    assert "remove the folder to begin at step 0" in refused.value.hint


def test_a_loop_that_finishes_early_has_a_checkpoint_of_its_last_step(tmp_path):
    _, training = build(tmp_path, save_every=0)
    for _ in training.batches(data(), batch=8, steps=100):
        if training.step == 4:
            training.finish()
    assert training.step == 5
    assert build(tmp_path)[1].step == 5


def test_numbers_are_written_with_their_step(tmp_path):
    train(tmp_path, 6)
    lines = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (lines[0]["step"], lines[-1]["step"]) == (1, 6)
    assert lines[-1]["loss"] > 0


def test_a_script_may_log_a_step_and_a_time_of_its_own(tmp_path):
    _, training = build(tmp_path)
    for _ in training.batches(data(), batch=8, steps=1):
        training.log(step=700, t=0.5, loss=2.0)
    (line,) = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert (line["step"], line["loss"]) == (1, 2.0)
    assert line["t"] > 1e9, "when it was written"


def test_other_data_or_other_parts_are_refused_and_named(tmp_path):
    train(tmp_path, 4)
    _, training = build(tmp_path)
    with pytest.raises(CheckpointError, match="had 50 samples when it was saved and has 40 now"):
        next(training.batches(data(40), batch=8, steps=9))
    with pytest.raises(CheckpointError, match="has no ema"):
        build(tmp_path, ema=nn.Linear(1, 1))
    with pytest.raises(CheckpointError, match="seed 1"):
        build(tmp_path, seed=1)
    with pytest.raises(CheckpointError, match="does not fit this model"):
        muster.Training(tmp_path, model=nn.Linear(3, 3))


class Endless(IterableDataset):
    """A data set without a length."""

    def __iter__(self):
        return itertools.count()


class Counted(Endless):
    """A data set that has a length, but whose samples cannot be read by index."""

    def __len__(self):
        return SAMPLES


class Lambda:
    """A part whose state no checkpoint can hold."""

    def state_dict(self):
        return {"function": print}

    def load_state_dict(self, state_dict):
        pass


def test_arguments_that_cannot_work_are_refused_with_the_reason(tmp_path, monkeypatch):
    with pytest.raises(Refused, match="no parts"):
        muster.Training(tmp_path)
    for wrong in ("keep", "save_every"):  # -1 would delete all but one, or save after each step
        with pytest.raises(Refused, match=f"{wrong}=-1"):
            build(tmp_path, **{wrong: -1})
        for odd in (None, float("nan"), "2"):
            with pytest.raises(Refused, match=f"{wrong}={odd}"):
                build(tmp_path, **{wrong: odd})
    with pytest.raises(Refused, match="no state_dict"):
        muster.Training(tmp_path, model=3)
    _, training = build(tmp_path)
    with pytest.raises(Refused, match="no length"):
        next(training.batches(Endless(), batch=8, steps=1))
    with pytest.raises(Refused, match="no length"):
        next(training.batches(Counted(), batch=8, steps=1))
    with pytest.raises(Refused, match="got a DataLoader"):
        next(training.batches(DataLoader(data()), batch=8, steps=1))
    with pytest.raises(Refused, match="micro_batches=9, but a rank has only 8 samples"):
        next(training.batches(data(), batch=8, steps=1, micro_batches=9))
    with pytest.raises(TrainError, match=r"function.*builtin_function_or_method"):
        list(muster.Training(tmp_path / "other", part=Lambda()).batches(data(), batch=8, steps=1))
    arrays = SimpleNamespace(state_dict=lambda: {"four": (numpy.ones(2), 1, 2, 3)}, load_state_dict=None)
    with pytest.raises(TrainError, match=r"part.*four.*cannot hold a ndarray"):
        list(muster.Training(tmp_path / "other", part=arrays).batches(data(), batch=8, steps=1))
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(Refused, match="before init_process_group"):
        build(tmp_path)


def test_optimizer_moments_take_the_current_layout_of_their_weights():
    model = nn.Conv2d(3, 4, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3, 8, 8)).sum().backward()
    optimizer.step()
    state = {"optimizer": optimizer.state_dict()}
    other = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    loaded = torch.optim.AdamW(other.parameters())
    trained_parts.apply("here", state, {"optimizer": loaded})
    assert loaded.state[other.weight]["exp_avg"].stride() == other.weight.stride()
    assert torch.equal(loaded.state[other.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])


class Master(torch.optim.Optimizer):
    """SGD on a copy of each weight in higher precision."""

    @torch.no_grad()
    def step(self):
        for weight in self.param_groups[0]["params"]:
            copy = self.state[weight].setdefault("master", weight.float())
            weight.copy_(copy.sub_(weight.grad, alpha=self.param_groups[0]["lr"]))


def test_an_optimizers_master_weights_come_back_with_all_of_their_bits():
    model = nn.Linear(4, 4, dtype=torch.bfloat16)
    optimizer, loaded = (Master(model.parameters(), {"lr": 0.001}) for _ in range(2))
    model(torch.ones(1, 4, dtype=torch.bfloat16)).sum().backward()
    optimizer.step()
    trained_parts.apply("here", {"optimizer": optimizer.state_dict()}, {"optimizer": loaded})
    saved = optimizer.state[model.weight]["master"]
    assert not torch.equal(saved, saved.bfloat16().float())
    assert torch.equal(loaded.state[model.weight]["master"], saved)


PLAN = {"0": ColwiseParallel(), "1": RowwiseParallel()}


@pytest.mark.parametrize(("mesh", "warned"), [("fsdp", False), ("hsdp", False), ("tp", True), ("fsdp tp", True)])
def test_a_tensor_parallel_model_gets_a_warning_about_different_samples_per_rank(mesh, warned, tmp_path):
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    try:
        dims = {"fsdp": ("dp",), "hsdp": ("replicas", "shards"), "tp": ("tp",), "fsdp tp": ("dp", "tp")}[mesh]
        all_dims = init_device_mesh("cpu", (1,) * len(dims), mesh_dim_names=dims)
        model = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 4))
        if "tp" in dims:
            parallelize_module(model, all_dims["tp"], PLAN)
        if mesh != "tp":
            fully_shard(model, mesh=all_dims["dp"] if "dp" in dims else all_dims)
        optimizer = torch.optim.SGD(model.parameters())
        with warnings.catch_warnings(record=True) as seen:
            warnings.simplefilter("always")
            muster.Training(tmp_path, model=model, optimizer=optimizer)
        assert [str(each.message).partition(";")[0] for each in seen if "tensor parallel" in str(each.message)] == [
            "muster.Training: the model is tensor parallel"
        ] * warned
    finally:
        dist.destroy_process_group()
