"""The loss of a step is the value that its backward began from; if that is unknown, the watcher says why."""

import math
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from trainer.node.rank.steps import losses
from trainer.node.rank.steps.losses import Losses

torch = pytest.importorskip("torch")
pytestmark = pytest.mark.torch


class Script:
    """Steps of a script with one weight, as torch_hooks.py reports them. `read`: the losses read from them."""

    def __init__(self):
        self.losses, self.step = Losses(), 0

    def backward(self, loss, plain=True):
        self.losses.root(torch, loss, plain)
        for each in loss if isinstance(loss, list) else [loss]:
            if isinstance(each, torch.Tensor) and each.requires_grad:
                each.backward(torch.ones_like(each), retain_graph=True)

    def stepped(self, optimizer, first=True):
        self.step += first
        self.losses.stepped(torch, optimizer, self.step, first)

    @property
    def read(self):
        self.losses.settle(torch)
        return [point["loss"] for point in self.losses.points]


@pytest.fixture
def script():
    return Script()


def weight():
    return torch.nn.Parameter(torch.ones(1))


def sgd(parameter=None, lr=0.5):
    optimizer = torch.optim.SGD([weight() if parameter is None else parameter], lr=lr)
    return optimizer


def loss_of(optimizer, value):
    return optimizer.param_groups[0]["params"][0].sum() * value


def test_each_step_has_the_loss_that_backward_began_from_and_its_rate(script):
    optimizer = sgd()
    for value in (3.0, 2.0):
        script.backward(loss_of(optimizer, value))
        script.stepped(optimizer)
        assert script.losses.is_pending
        optimizer.zero_grad()
    assert script.read == [3.0, 2.0]
    assert not script.losses.is_pending
    assert script.losses.points == [{"step": 1, "loss": 3.0, "lr": 0.5}, {"step": 2, "loss": 2.0, "lr": 0.5}]
    assert (script.losses.seen, script.losses.failures, script.losses.why_not) == (2, 0, "")


def test_the_parts_of_an_accumulated_step_are_added(script):
    optimizer = sgd()
    script.backward(loss_of(optimizer, 9.0))
    script.stepped(optimizer)  # from here on the optimizer is known
    optimizer.zero_grad()
    for value in (1.0, 0.5, 0.25):
        script.backward(loss_of(optimizer, value))
    script.stepped(optimizer)
    assert script.read == [9.0, 1.75]


def test_losses_whose_gradients_were_dropped_before_the_step_do_not_count(script):
    optimizer = sgd()
    script.backward(loss_of(optimizer, 9.0))
    script.stepped(optimizer)
    optimizer.zero_grad()
    script.backward(loss_of(optimizer, 5.0))
    optimizer.zero_grad()
    script.backward(loss_of(optimizer, 1.0))
    script.stepped(optimizer)
    assert script.read == [9.0, 1.0]


def test_a_first_step_of_several_parts_is_not_guessed(script):
    optimizer = sgd()
    for value in (1.0, 2.0):
        script.backward(loss_of(optimizer, value))
    script.stepped(optimizer)
    assert script.read == []


def test_two_losses_followed_by_two_steps_are_reported_as_ambiguous(script):
    both = [sgd(), sgd()]
    for optimizer in both:
        script.backward(loss_of(optimizer, 1.0))
        script.stepped(optimizer, first=optimizer is both[0])
        optimizer.zero_grad()
    for optimizer, value in zip(both, (3.0, 2.0), strict=True):
        script.backward(loss_of(optimizer, value))
    for optimizer in both:
        script.stepped(optimizer, first=optimizer is both[0])
    assert script.read == [1.0]
    assert "nothing shows which belong together" in script.losses.why_not


def test_a_gradient_scale_is_divided_out_and_a_skipped_step_leaves_no_loss(script):
    optimizer, scaler = sgd(), SimpleNamespace(_scale=torch.tensor(8.0))
    for value, passed_over in ((5.0, True), (3.0, False)):
        scaled = loss_of(optimizer, value) * 8
        script.losses.scaled(scaler, scaled)
        script.backward(scaled)
        if not passed_over:
            script.stepped(optimizer)
        script.losses.unscaled(passed_over)
        optimizer.zero_grad()
    assert script.read == [3.0]


def test_a_scale_of_zero_gives_nan_and_does_not_end_the_watching(script):
    optimizer, scaler = sgd(), SimpleNamespace(_scale=torch.tensor(0.0))
    scaled = loss_of(optimizer, 3.0) * 0
    script.losses.scaled(scaler, scaled)
    script.backward(scaled)
    script.stepped(optimizer)
    assert [math.isnan(loss) for loss in script.read] == [True]


def test_a_loss_that_no_scaler_made_is_not_divided(script):
    optimizer, scaler = sgd(), SimpleNamespace(_scale=torch.tensor(8.0))
    script.losses.scaled(scaler, [loss_of(optimizer, 1.0) * 8])
    script.losses.unscaled(passed_over=False)
    script.backward(loss_of(optimizer, 3.0))
    script.stepped(optimizer)
    assert script.read == [3.0]


def train_with_lbfgs(script):
    """Take two steps with a new LBFGS; return the loss of the first of each step's several evaluations."""
    parameter = weight()
    optimizer = torch.optim.LBFGS([parameter], max_iter=3, lr=0.1)
    values, firsts = [], []

    def closure():
        optimizer.zero_grad()
        loss = (parameter - 3).square().sum()
        values.append(loss.item())
        script.losses.root(torch, loss, True)
        loss.backward()
        return loss

    for _ in range(2):
        firsts.append(len(values))
        optimizer.step(closure)
        script.stepped(optimizer)
    assert len(values) > 2
    return [pytest.approx(values[at]) for at in firsts]


def test_the_loss_of_an_lbfgs_step_is_that_of_its_first_evaluation(script):
    assert train_with_lbfgs(script) == script.read


def test_an_lbfgs_with_the_reused_id_of_another_counts_from_zero(script):
    """The optimizer of the next fold may get the address of the last one, and so the same id."""
    wanted = [loss for _ in range(20) for loss in train_with_lbfgs(script)]
    assert script.read == wanted


@pytest.mark.parametrize(
    ("loss", "plain", "why"),
    [
        (lambda w: w.sum(), False, "explicit gradients or inputs"),
        (lambda w: torch.cat([w, w]), True, "not a single real number"),
        (lambda w: w.sum() * 1j, True, "not a single real number"),
        (lambda w: w, True, "backward starts from a Parameter"),
        (lambda w: "loss", True, "backward starts from a str"),
        (lambda w: w.to("meta").sum(), True, "does not read a loss on meta"),
    ],
)
def test_the_reason_is_given_if_a_loss_cannot_be_read(script, loss, plain, why):
    optimizer = sgd()
    script.losses.root(torch, loss(optimizer.param_groups[0]["params"][0]), plain)
    script.stepped(optimizer)
    assert script.read == []
    assert why in script.losses.why_not
    assert script.losses.failures == 1
    script.backward(loss_of(optimizer, 2.0))
    script.stepped(optimizer)
    assert script.read == [2.0], "the next step is read again"


@pytest.mark.parametrize("name", ["deepspeed", "apex", "colossalai"])
def test_a_library_that_scales_losses_itself_is_named(script, monkeypatch, name):
    monkeypatch.setitem(losses.sys.modules, name, SimpleNamespace())
    script.backward(loss_of(sgd(), 1.0))
    script.stepped(sgd())
    assert script.losses.why_not == f"{name} scales the losses itself"


@pytest.mark.parametrize("hears", ["mode", "profiler"])
def test_no_loss_is_read_while_the_script_would_notice_it(script, hears):
    from torch.utils._python_dispatch import TorchDispatchMode

    class Mode(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, words=(), named=None):
            return function(*words, **(named or {}))

    optimizer = sgd()
    with Mode() if hears == "mode" else torch.autograd.profiler.profile():
        loss = loss_of(optimizer, 2.0)
        script.losses.root(torch, loss, True)
        script.stepped(optimizer)
    assert "a torch dispatch mode or profiler" in script.losses.why_not
    script.backward(loss_of(optimizer, 1.0))
    script.stepped(optimizer)
    with Mode() if hears == "mode" else torch.autograd.profiler.profile():
        assert script.read == []
        assert script.losses.is_pending
    assert script.read == [1.0]


class OnGpu:
    """The part of torch that waits for a GPU's copy to this machine; `come`: the copy has arrived."""

    def __init__(self):
        self.come, self.capturing = False, False
        event = SimpleNamespace(record=lambda: None, query=lambda: self.come)
        self.cuda = SimpleNamespace(
            device=lambda _: nullcontext(), Event=lambda: event, is_current_stream_capturing=lambda: self.capturing
        )
        self._C, self.autograd, self.float64, self.stack = torch._C, torch.autograd, torch.float64, self._stack

    @staticmethod
    def _stack(scalars):
        return [each.value for each in scalars]

    @staticmethod
    def empty(count, **_):
        here = [0.0] * count
        return SimpleNamespace(
            copy_=lambda values, non_blocking: here.__setitem__(slice(None), values), tolist=lambda: here
        )


def scalar(value):
    made = SimpleNamespace(value=value, device=SimpleNamespace(type="cuda"))
    made.reshape = made.to = lambda *_, **__: made
    return made


def test_a_gpus_loss_is_read_once_it_has_arrived_and_not_while_a_graph_is_captured():
    gpu, optimizer, several = OnGpu(), sgd(), Losses()
    several._groups = [[(scalar(24.0), scalar(8.0)), (scalar(1.0), None)]]
    several._optimizers[id(optimizer)] = lambda: optimizer
    several.stepped(gpu, optimizer, 4, True)
    several.settle(gpu)
    assert several.is_pending
    gpu.come = gpu.capturing = True
    several.settle(gpu)
    assert several.is_pending
    gpu.capturing = False
    several.settle(gpu)
    assert several.points == [{"step": 4, "loss": 4.0, "lr": 0.5}]


@pytest.mark.parametrize(
    ("groups", "evaluations", "first"),
    [
        ([["a"], ["b"], ["c"]], 2, ["b"]),
        ([["a", "b", "c", "d"]], 2, ["a", "b"]),
        ([["a", "b", "c"]], 2, []),
        ([["a"], ["b", "c"]], 3, []),
        ([["a"]], 1, ["a"]),
    ],
)
def test_the_first_of_several_evaluations_is_known_or_nothing_is_guessed(groups, evaluations, first):
    assert losses._of_first(groups, evaluations) == first
