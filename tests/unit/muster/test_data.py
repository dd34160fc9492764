"""Each epoch takes every sample once, at any world size and across a change of the world size."""

import itertools
from typing import NamedTuple

import pytest
import torch
from torch.utils.data import TensorDataset

from muster.data import StreamSampler, batches, cuts, share, to_device

SIZE, BATCH, SEED = 101, 12, 7


def take(world, steps, consumed=0, micro=0):
    """Return the samples that all ranks together take in `steps` steps, in stream order."""
    taken = []
    samplers = []
    for rank in range(world):
        low, high = share(BATCH, world, rank)
        pieces = -(-(high - low) // micro) if micro else 1
        samplers.append(
            (
                pieces,
                iter(
                    StreamSampler(
                        SIZE, batch=BATCH, micro_batches=pieces, world=world, rank=rank, seed=SEED, consumed=consumed
                    )
                ),
            )
        )
    for _ in range(steps):
        for pieces, sampler in samplers:
            taken += itertools.chain.from_iterable(itertools.islice(sampler, pieces))
    return taken


@pytest.mark.parametrize("world", [1, 2, 3, 4, 5, 8, 12])
@pytest.mark.parametrize("micro", [0, 1, 2, 5])
def test_the_stream_is_the_same_at_any_world_size(world, micro):
    assert take(world, 30, micro=micro) == take(1, 30)


@pytest.mark.parametrize("world", [1, 2, 3, 4])
@pytest.mark.parametrize("after", [1, 2, 3, 4])
def test_an_epoch_holds_every_sample_once_across_a_change_of_world_size(world, after):
    steps = 3
    taken = take(world, steps) + take(after, 30, consumed=steps * BATCH)
    for epoch in range(3):
        assert sorted(taken[epoch * SIZE : (epoch + 1) * SIZE]) == list(range(SIZE))


def test_epochs_are_shuffled_differently():
    taken = take(1, 20)
    assert taken[:SIZE] != taken[SIZE : 2 * SIZE]


def test_the_order_is_that_of_distributed_sampler():
    plain = torch.utils.data.DistributedSampler(range(SIZE), num_replicas=1, rank=0, seed=SEED)
    plain.set_epoch(1)
    assert take(1, 20)[SIZE : 2 * SIZE] == list(plain)


def test_shares_and_cuts_leave_no_gap():
    for world in range(1, 12):
        bounds = [share(BATCH, world, rank) for rank in range(world)]
        assert [low for low, _ in bounds] == [0] + [high for _, high in bounds[:-1]]
        assert bounds[-1][1] == BATCH
    assert cuts(5, 12, 3) == [(5, 7), (7, 9), (9, 12)]


def test_tensors_in_memory_and_any_other_dataset_give_the_same_batches():
    class Plain(torch.utils.data.Dataset):
        def __len__(self):
            return SIZE

        def __getitem__(self, index):
            return torch.tensor(float(index)), index

    tensors = TensorDataset(torch.arange(SIZE, dtype=torch.float32), torch.arange(SIZE))
    chosen = [[3, 1], [100, 0, 50]]
    for quick, plain in zip(batches(tensors, chosen), batches(Plain(), chosen), strict=True):
        assert torch.equal(quick[0], plain[0])
        assert torch.equal(quick[1], plain[1])


def test_a_subclass_of_tensordataset_keeps_its_own_getitem():
    class Turned(TensorDataset):
        def __getitem__(self, index):
            return super().__getitem__(index)[0].flip(0)

    (batch,) = batches(Turned(torch.arange(4.0).view(2, 2)), [[0, 1]])
    assert batch.tolist() == [[1, 0], [3, 2]]


def test_a_loader_does_not_touch_the_ranks_random_numbers():
    before = torch.get_rng_state()
    list(batches(list(range(4)), [[0, 1]]))
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dataset", [TensorDataset(torch.arange(4.0)), list(range(4))], ids=["tensors", "any other"])
def test_the_users_collate_function_is_used_for_any_dataset(dataset):
    assert list(batches(dataset, [[0, 1], [3]], collate=len)) == [2, 1]


def test_every_tensor_of_a_batch_goes_to_the_device_and_all_else_stays_as_it_is():
    meta, name = torch.device("meta"), object()
    batch = {"x": torch.ones(2), "more": [torch.ones(1), (torch.ones(3), "text")], "name": name}
    moved = to_device(batch, meta)
    tensors = [moved["x"], moved["more"][0], moved["more"][1][0]]
    assert [(tensor.device.type, len(tensor)) for tensor in tensors] == [("meta", 2), ("meta", 1), ("meta", 3)]
    assert (type(moved["more"]), type(moved["more"][1]), moved["more"][1][1]) == (list, tuple, "text")
    assert moved["name"] is name


class Pair(NamedTuple):
    """A batch type that a collate function may return."""

    x: torch.Tensor
    name: str


def test_named_tuples_and_objects_that_move_themselves_go_to_the_device():
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(2), torch.ones(1)])
    pair, moved = to_device([Pair(torch.ones(2), "a"), packed], torch.device("meta"))
    assert (type(pair), pair.x.device.type, pair.name) == (Pair, "meta", "a")
    assert moved.data.device.type == "meta"


def test_on_the_cpu_a_batch_stays_the_users_own_object():
    batch = [torch.ones(1)]
    assert to_device(batch, torch.device("cpu")) is batch
