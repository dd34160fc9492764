"""What a rank saves when a run breaks off: the last finished step, once, and never an older one."""

import random
import threading

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from muster.checkpoint import store
from muster.checkpoint.randomness import Seeded, seed_step
from muster.errors import TrainError
from trainer.train.buffers import Buffers
from trainer.train.ending import rescue
from trainer.train.ending.rescue import Mark, Rescue

CPU = torch.device("cpu")

pytestmark = pytest.mark.torch


def drawn(seed, step, share):
    """Return what each random generator gives at the beginning of a step."""
    seed_step(seed, step, share, CPU)
    return random.random(), float(torch.rand(())), float(numpy.random.rand())


def test_a_steps_random_numbers_depend_on_seed_step_and_share_alone():
    first = drawn(0, 7, 1)
    torch.rand(1000)
    assert drawn(0, 7, 1) == first
    others = [drawn(1, 7, 1), drawn(0, 8, 1), drawn(0, 7, 2), drawn(0, 71, 1), drawn(0, 7, 11)]
    assert len({first, *others}) == 6


class Noisy(TensorDataset):
    """A data set that draws a random number for each sample."""

    def __getitem__(self, index):
        return super().__getitem__(index)[0] + torch.rand(())


def test_a_loader_process_draws_the_same_for_a_list_wherever_it_begins():
    lists = [[0, 1], [2, 3], [4, 5], [6, 7]]
    dataset = Seeded(Noisy(torch.arange(8.0)), 3, 1)

    def batches(first, workers):
        own = list(enumerate(lists[first:], first))
        return [batch.tolist() for batch in DataLoader(dataset, batch_sampler=own, num_workers=workers)]

    assert batches(2, 1) == batches(0, 2)[2:]


def test_of_two_checkpoints_that_follow_a_mark_the_one_with_more_steps_is_newer():
    mark = Mark(1000, 1.8e9)
    times = [mark.at(step) for step in (1000, 1001, 1002, 2_000_000)]
    assert times == sorted(set(times))
    assert times[-1] < mark.time + 60, "no later than the steps themselves took"


@pytest.fixture
def folder(tmp_path):
    """A checkpoints folder with one checkpoint, of step 10."""
    store.write(tmp_path / "checkpoints", 10, {"x": torch.ones(3)}, metric=None, summary={}, created=100.0)
    return tmp_path / "checkpoints"


def saves(folder, step, created, keep=3):
    """Save this step with a new rescue; return its reports, which are empty if it wrote nothing."""
    reports = []
    made = Rescue(folder.parent, folder, keep, None, reports.append)
    made.save(step, created, lambda: ({"x": torch.full((3,), float(step))}, {}))
    return reports


def test_a_rescue_is_an_ordinary_checkpoint_and_the_second_rank_of_a_disk_writes_none(folder):
    (report,) = saves(folder, 12, 100.2)
    assert report.error is None
    newest, _ = store.newest_usable(folder)
    assert (newest.path, newest.manifest.step) == (report.path, 12)
    assert saves(folder, 12, 100.2) == []
    assert saves(folder, 11, 100.1) == [], "less than this disk has"
    assert len(saves(folder, 13, 100.3, keep=1)) == 1, "another rank had finished one step more"
    assert [path.name for path in folder.iterdir()] == ["step-00000013"]


def test_a_paused_ranks_step_is_older_than_what_others_have_written_since(folder):
    store.write(folder, 50, {"x": torch.ones(3)}, metric=None, summary={}, created=200.0)
    assert saves(folder, 12, Mark(10, 100.0).at(12)) == []


def test_a_full_disk_leaves_the_earlier_checkpoint(folder, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(store.HashingFile, "save", full)
    (report,) = saves(folder, 12, 100.2)
    assert "the disk is full" in report.error.message
    assert store.newest_usable(folder)[0].manifest.step == 10


def test_a_disk_that_does_not_answer_does_not_block_the_rank(folder, monkeypatch):
    monkeypatch.setattr(rescue, "_SECONDS", 0.2)
    answers = threading.Event()

    def write(*_, **__):
        answers.wait()
        raise TrainError("the disk is gone")

    monkeypatch.setattr(store, "write", write)
    assert saves(folder, 12, 100.2) == [], "it came back before the disk answered"
    answers.set()


def test_a_step_that_broke_leaves_no_trace_in_the_buffers(tmp_path):
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    try:
        model = nn.BatchNorm1d(3)
        buffers = Buffers(model)
        model(torch.randn(8, 3))
        buffers.send()
        buffers.wait()
        buffers.finish()
        finished = {name: buffer.clone() for name, buffer in model.named_buffers()}
        model(torch.randn(8, 3))
        buffers.send()
        assert model.num_batches_tracked == 2
        buffers.restore()
        assert all(torch.equal(finished[name], buffer) for name, buffer in model.named_buffers())
        assert model.num_batches_tracked == 1
    finally:
        dist.destroy_process_group()
