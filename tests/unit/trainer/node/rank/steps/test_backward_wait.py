"""The time that `backward` takes after its own work is its wait for other ranks; a GPU's own clock measures it."""

import sys
import time
from types import SimpleNamespace

import pytest

from trainer.node.rank.steps import backward_wait

WAITED = 0.05


class Gpu:
    """The part of torch on a GPU that is used here: events pass when the test says so, at times that it chooses."""

    def __init__(self, capturing=False):
        self.clock, self.passed, self.queued, self.hooks = 0.0, False, [], []
        gpu = self

        class Tensor:
            requires_grad, device = True, SimpleNamespace(type="cuda")

            def register_hook(self, hook):
                gpu.hooks.append(hook)
                return SimpleNamespace(remove=lambda: gpu.hooks.remove(hook))

        class Event:
            def __init__(self, enable_timing):
                self.times = enable_timing

            def record(self):
                self.at = gpu.clock

            def query(self):
                return gpu.passed

            def elapsed_time(self, other):
                return other.at - self.at

        self.Tensor = Tensor
        self.cuda = SimpleNamespace(Event=Event, is_current_stream_capturing=lambda: capturing)
        engine = SimpleNamespace(queue_callback=self.queued.append)
        self.autograd = SimpleNamespace(Variable=SimpleNamespace(_execution_engine=engine))

    def backward(self, works=4.0, waits=6.0):
        for hook in list(self.hooks):
            hook(None)
        self.clock += works
        while self.queued:
            self.queued.pop()()
        self.clock += waits


@pytest.mark.torch
@pytest.mark.parametrize("several", [False, True])
def test_backwards_own_work_does_not_count_as_waiting(several):
    import torch

    wait = backward_wait.Wait(torch)
    weight = torch.ones(2, requires_grad=True)
    weight.register_hook(lambda _: time.sleep(WAITED))  # work in the middle
    loss = (weight * 2).sum()
    wait.begin([loss] if several else loss)
    # As DDP does: the callback that waits runs once all gradients are there.
    engine = torch.autograd.Variable._execution_engine
    loss.register_hook(lambda _: engine.queue_callback(lambda: time.sleep(2 * WAITED)))
    loss.backward()
    wait.end()
    assert wait.known
    assert 2 * WAITED <= wait.seconds() < 3 * WAITED
    assert wait.is_readable()


@pytest.mark.torch
@pytest.mark.parametrize("root", ["a text", "no gradient"])
def test_the_wait_is_unknown_if_backward_does_not_begin_from_a_loss(root):
    import torch

    wait = backward_wait.Wait(torch)
    wait.begin(torch.ones(1) if root == "no gradient" else root)
    wait.end()
    assert not wait.known


def test_on_a_gpu_the_wait_is_measured_by_events_once_all_have_passed():
    gpu = Gpu()
    wait = backward_wait.Wait(gpu)
    for _ in range(2):
        wait.begin(gpu.Tensor())
        gpu.backward(works=4.0, waits=6.0)
        wait.end()
    assert not gpu.hooks, "nothing is left on the script's tensor"
    assert not wait.is_readable()
    gpu.passed = True
    assert wait.is_readable()
    assert (wait.known, wait.seconds()) == (True, 0.012)


def test_a_graph_that_is_captured_is_not_measured():
    gpu = Gpu(capturing=True)
    wait = backward_wait.Wait(gpu)
    wait.begin(gpu.Tensor())
    gpu.backward()
    wait.end()
    assert not wait.known


@pytest.mark.parametrize(
    ("world", "initialized", "compiled", "measured"),
    [(2, True, False, True), (1, True, False, False), (2, False, False, False), (2, True, True, False)],
)
def test_only_a_rank_with_peers_and_torchs_usual_engine_is_measured(
    monkeypatch, world, initialized, compiled, measured
):
    distributed = SimpleNamespace(
        is_available=lambda: True, is_initialized=lambda: initialized, get_world_size=lambda: world
    )
    monkeypatch.setitem(sys.modules, "torch.distributed", distributed)
    engine = SimpleNamespace(compiled_autograd_enabled=compiled)
    monkeypatch.setitem(sys.modules, "torch._dynamo.compiled_autograd", engine)
    assert (backward_wait.new_wait(Gpu()) is not None) == measured


def test_a_script_without_process_groups_waits_for_nobody(monkeypatch):
    monkeypatch.delitem(sys.modules, "torch.distributed", raising=False)
    assert backward_wait.new_wait(Gpu()) is None
