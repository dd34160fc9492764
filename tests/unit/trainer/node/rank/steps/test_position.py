"""A start's first step follows from its optimizer's own count, as long as that grows with the steps seen here."""

from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from trainer.node.rank.steps.position import Position


class Tensor:
    """A tensor with one number on a device."""

    def __init__(self, value, kind="cpu", count=1):
        self.value, self.count, self.device = value, count, SimpleNamespace(type=kind)

    def __int__(self):
        return int(self.value)

    def numel(self):
        return self.count

    def detach(self):
        return self

    def reshape(self, _):
        return self

    def to(self, *_, **__):
        return self

    def copy_(self, other, non_blocking):
        self.value = other.value

    def tolist(self):
        return [self.value]


class Sharded(Tensor):
    """A subclass of tensors, which may need all ranks to give its value."""


class Torch:
    """The part of torch that is used here. `heard`: a dispatch mode of the script notices what is done with tensors."""

    Tensor, float64 = Tensor, "float64"

    def __init__(self):
        self.heard, self.capturing, self.come = 0, False, False
        self._C = SimpleNamespace(_len_torch_dispatch_stack=lambda: self.heard)
        self.autograd = SimpleNamespace(_profiler_enabled=lambda: False)
        event = SimpleNamespace(record=lambda: None, query=lambda: self.come)
        self.cuda = SimpleNamespace(
            is_current_stream_capturing=lambda: self.capturing, device=lambda _: nullcontext(), Event=lambda: event
        )

    @staticmethod
    def stack(tensors):
        (alone,) = tensors
        return alone

    @staticmethod
    def empty(_, dtype, device, pin_memory):
        return Tensor(0.0)


class Adam:
    """An optimizer whose state counts its steps."""

    def __init__(self, number):
        self.state = {"weight": {"step": number}}


def looked(*numbers, torch=None, optimizer=None):
    """Return the position after steps 1, 2, ..., at which the optimizer's count had these values."""
    position, torch, optimizer = Position(), torch or Torch(), optimizer or Adam(0)
    for count, number in enumerate(numbers, 1):
        optimizer.state["weight"]["step"] = number
        position.observe(torch, optimizer, count)
    return position


@pytest.mark.parametrize("kind", [int, float, Tensor])
def test_an_optimizer_that_was_loaded_tells_the_step_at_which_it_continues(kind):
    assert [looked(kind(41), kind(42)).offset, looked(kind(41), kind(42)).is_known] == [40, True]
    assert looked(kind(1)).offset == 0


@pytest.mark.parametrize("numbers", [(41, 44), (41, 41), (0,), (41, 42, 1)])
def test_a_number_that_does_not_grow_with_the_steps_is_not_believed(numbers):
    assert not looked(*numbers).is_known


@pytest.mark.parametrize("number", ["41", None, Tensor(41, count=2), Tensor(41, "xla"), Sharded(41)])
def test_a_count_that_is_no_plain_number_is_not_used(number):
    assert looked(number).off


def test_an_optimizer_without_a_state_tells_nothing():
    position = Position()
    position.observe(Torch(), SimpleNamespace(state={}), 1)
    assert (position.is_known, position.off) == (False, True)


def test_with_two_optimizers_neither_count_is_believed():
    position, both = Position(), [Adam(41), Adam(42)]
    for count, optimizer in enumerate(both, 1):
        position.observe(Torch(), optimizer, count)
    assert not position.is_known


def test_a_state_that_cannot_be_read_costs_the_script_nothing():
    position = Position()
    position.observe(Torch(), SimpleNamespace(), 1)
    assert position.off


def test_nothing_is_read_while_the_script_would_notice_it():
    torch = Torch()
    torch.heard = 1
    assert [(each.offset, each.off) for each in [looked(41, torch=torch)]] == [(None, False)]


def test_a_gpus_number_is_read_once_it_has_arrived():
    torch, optimizer = Torch(), Adam(0)
    position, number = Position(), Tensor(41, "cuda")
    for count in (1, 2):
        optimizer.state["weight"]["step"] = number
        position.observe(torch, optimizer, count)
        number = Tensor(77, "cuda")  # later steps raise the count; the copied value stays
    assert position.offset is None
    torch.come = True
    position.observe(torch, optimizer, 3)
    assert (position.offset, position.is_known) == (40, True)


def test_nothing_is_copied_or_read_while_a_graph_is_captured():
    torch, optimizer = Torch(), Adam(Tensor(41, "cuda"))
    torch.capturing = torch.come = True
    position = Position()
    position.observe(torch, optimizer, 1)
    torch.capturing = False
    position.observe(torch, optimizer, 1)
    torch.capturing = True
    position.observe(torch, optimizer, 2)
    assert (position.offset, position.off) == (None, False)
    torch.capturing = False
    position.observe(torch, optimizer, 3)
    assert position.offset == 40
