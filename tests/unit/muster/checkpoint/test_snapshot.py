"""A snapshot holds the state as it was when the snapshot was taken, and the next one reuses its memory."""

from __future__ import annotations

import dataclasses
import errno
import io
import mmap
from collections import OrderedDict

import pytest
import torch

from muster.checkpoint.snapshot import Snapshot


def storages(value):
    return [tensor.untyped_storage().data_ptr() for tensor in value.values()]


def test_later_changes_in_place_do_not_reach_the_snapshot():
    state = {
        "w": torch.ones(1000),
        "groups": [{"lr": 0.1, "betas": (0.9, torch.tensor(0.99))}],
        "empty": torch.empty(0),
    }
    taken = Snapshot().take(state)
    state["w"].zero_()
    state["groups"][0]["lr"] = 5.0
    state["groups"][0]["betas"][1].fill_(7)
    state["groups"].append({})
    assert torch.equal(taken["w"], torch.ones(1000))
    assert taken["groups"] == [{"lr": 0.1, "betas": (0.9, torch.tensor(0.99))}]
    assert taken["empty"].shape == (0,)


@pytest.mark.parametrize(
    "dtype", [torch.float64, torch.bfloat16, torch.int64, torch.bool, torch.uint8, torch.complex64]
)
def test_every_dtype_shape_and_stride_is_kept(dtype):
    whole = (torch.arange(24).reshape(4, 6) % 5).to(dtype)
    state = {"whole": whole, "turned": whole.t()[1:3], "scalar": whole[2, 3], "odd": whole[0, :1].clone()}
    taken = Snapshot().take(state)
    for name, tensor in state.items():
        assert torch.equal(taken[name], tensor)
        assert (taken[name].dtype, taken[name].stride()) == (tensor.dtype, tensor.stride())


def test_a_second_snapshot_reuses_the_buffers_of_the_first():
    snapshot, state = Snapshot(), {"a": torch.zeros(100_000), "b": torch.zeros(3, dtype=torch.int64)}
    first = snapshot.take(state)
    state["a"].fill_(2)
    again = snapshot.take(state)
    assert storages(again) == storages(first)
    assert torch.equal(first["a"], state["a"]), "the first is still held, so equal addresses mean the same memory"


def test_a_snapshot_is_right_after_the_states_layout_changed():
    snapshot, state = Snapshot(), {"a": torch.zeros(1000)}
    snapshot.take(state)
    state = {"before": torch.full((70,), 3.0), "a": torch.ones(2000)}
    taken = snapshot.take(state)
    assert all(torch.equal(taken[name], state[name]) for name in state)


def test_tied_weights_stay_tied_and_are_stored_once():
    model = torch.nn.ModuleDict({"embed": torch.nn.Embedding(500, 64), "head": torch.nn.Linear(64, 500, bias=False)})
    model["head"].weight = model["embed"].weight
    taken = Snapshot().take(model.state_dict())
    assert taken["embed.weight"].data_ptr() == taken["head.weight"].data_ptr()
    assert torch.equal(taken["head.weight"], model["head"].weight)
    file = io.BytesIO()
    torch.save(taken, file)
    assert 500 * 64 * 4 < file.tell() < 2 * 500 * 64 * 4


def test_a_model_and_optimizer_continue_exactly_from_the_snapshot():
    def build():
        torch.manual_seed(1)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
        return model, torch.optim.AdamW(model.parameters(), lr=0.01)

    def step(model, optimizer, seed):
        loss = model(torch.randn(16, 8, generator=torch.Generator().manual_seed(seed))).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.item()

    first, other = build(), build()
    step(*first, 0)
    taken = Snapshot().take({"model": first[0].state_dict(), "optimizer": first[1].state_dict()})
    after = step(*first, 1)
    assert isinstance(taken["model"], OrderedDict)
    assert taken["model"]._metadata == first[0].state_dict()._metadata
    other[0].load_state_dict(taken["model"])
    other[1].load_state_dict(taken["optimizer"])
    assert step(*other, 1) == after
    assert all(
        torch.equal(a, b) for a, b in zip(first[0].state_dict().values(), other[0].state_dict().values(), strict=True)
    )


@dataclasses.dataclass
class Settings:
    lr: float = 0.1


@pytest.mark.parametrize(
    "value", [Settings(), {1, 2}, torch.eye(3).to_sparse(), torch.ones(2, dtype=torch.complex64).conj()]
)
def test_a_value_that_no_checkpoint_can_restore_is_refused_with_its_place(value):
    with pytest.raises(TypeError, match=r"state\['optimizer'\]\[1\]"):
        Snapshot().take({"optimizer": [0, value]})


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU here")
def test_a_gpu_state_lands_in_pinned_memory():
    state = {"w": torch.randn(1_000_000, device="cuda"), "cpu": torch.ones(5)}
    expected = state["w"].cpu()
    taken = Snapshot().take(state)
    state["w"].zero_()
    assert taken["w"].is_pinned()
    assert torch.equal(taken["w"], expected)


class NoHugePages(mmap.mmap):
    """Memory on a kernel that was built without huge pages."""

    def madvise(self, *_):
        raise OSError(errno.EINVAL, "Invalid argument")


def test_without_huge_pages_in_the_kernel_a_snapshot_uses_ordinary_pages(monkeypatch):
    monkeypatch.setattr(mmap, "mmap", NoHugePages)
    assert torch.equal(Snapshot().take({"w": torch.ones(1000)})["w"], torch.ones(1000))
