"""The watcher hears each call of torch's functions once, as long as it watches, and no call inside another."""

import threading
from collections import OrderedDict
from contextlib import nullcontext
from itertools import chain
from types import ModuleType, SimpleNamespace

import pytest

from trainer.node.rank.steps import torch_hooks
from trainer.node.rank.steps.steps import Steps


class Watcher:
    """Records each call of its methods by name."""

    def __init__(self):
        self.steps, self.heard = Steps(), []
        self.handles_states, self.trains = 0, True
        self.steps.due = float("inf")

    def __getattr__(self, name):
        return lambda *words: self.heard.append((name, *words)) or name


def patched(name, **functions):
    """Return a hooked torch module of this name with these functions, and its watcher."""
    watcher, module = Watcher(), ModuleType(name)
    module.__dict__.update(functions)
    module.torch = SimpleNamespace(
        _C=SimpleNamespace(DisableTorchFunction=nullcontext), is_grad_enabled=lambda: module.__dict__.get("grad", True)
    )
    torch_hooks.patches(watcher)[name](module)
    return module, watcher


def backward(tensors, grad_tensors=None, retain_graph=None, create_graph=False, grad_variables=None, inputs=None):
    """Like torch's backward; it calls `tensors` inside, if that is a function."""
    if callable(tensors):
        tensors()


def test_a_call_of_backward_counts_once_with_its_time_and_one_inside_belongs_to_it():
    module, watcher = patched("torch.autograd", backward=backward)
    steps, doing = watcher.steps, []
    module.backward(lambda: (doing.append(steps.doing), module.backward("inner")))
    assert (steps.backwards, doing, steps.doing, watcher.heard) == (1, ["backward"], "", [])
    assert 0 < steps.backward < 1


def test_a_backward_that_raises_still_counts():
    module, watcher = patched("torch.autograd", backward=backward)
    with pytest.raises(ZeroDivisionError):
        module.backward(lambda: 1 / 0)
    assert (watcher.steps.backwards, watcher.steps.doing) == (1, "")


def test_backward_is_not_counted_while_counting_is_off():
    module, watcher = patched("torch.autograd", backward=backward)
    watcher.steps.off = True
    module.backward("loss")
    assert watcher.steps.backwards == 0


@pytest.mark.parametrize(
    ("words", "named", "plain"),
    [
        (("loss",), {}, True),
        (("loss", None, True, False, None), {}, True),
        (("loss", "gradients"), {}, False),
        (("loss", None, None, False, None, "inputs"), {}, False),
        (("loss",), {"inputs": "inputs"}, False),
        (("loss",), {"inputs": None}, True),
        (("loss",), {"grad_tensors": "gradients"}, False),
    ],
)
def test_a_step_that_is_due_is_looked_at_with_the_arguments_of_backward(words, named, plain):
    module, watcher = patched("torch.autograd", backward=backward)
    watcher.steps.due, watcher.steps.attended = 0.0, True
    module.backward(*words, **named)
    (begins, ends) = watcher.heard
    assert (begins[:3], ends) == (("backward_begins", "loss", plain), ("backward_ends",))


class Optimizers(SimpleNamespace):
    """torch.optim.optimizer, with the hooks that are registered for each step of any optimizer."""

    def __init__(self):
        super().__init__(before=OrderedDict(), after=[])
        self.functions = {
            "register_optimizer_step_pre_hook": self.first,
            "register_optimizer_step_post_hook": self.after.append,
        }

    def first(self, hook):
        self.before[id(hook)] = hook
        return SimpleNamespace(remove=lambda: self.before.pop(id(hook)))

    def step(self, optimizer):
        for hook in chain(self.before.values(), self.after):
            hook(optimizer, (), {})


class Optimizer:
    """An optimizer of torch's."""


@pytest.fixture
def optimizers():
    made = Optimizers()
    made.watcher = patched("torch.optim.optimizer", **made.functions)[1]
    return made


def test_every_step_counts_and_the_first_one_is_reported_before_it_runs(optimizers):
    own = Optimizer()
    for _ in range(3):
        optimizers.step(own)
    assert optimizers.watcher.heard == [("first_step", own)]
    assert optimizers.watcher.steps.count == 3


def test_a_script_may_have_its_own_hook_before_each_step(optimizers):
    """torch loops over the dictionary of hooks itself: removing a hook during the loop would end the script."""
    heard = []
    optimizers.first(lambda optimizer, *_: heard.append(optimizer))
    own = Optimizer()
    optimizers.step(own)
    optimizers.step(own)
    assert heard == [own, own]


@pytest.mark.parametrize("closer", ["attended", "not yet training"])
def test_a_step_that_gets_a_closer_look_is_left_to_the_watcher(optimizers, closer):
    watcher, own = optimizers.watcher, Optimizer()
    watcher.steps.attended, watcher.trains = closer == "attended", closer == "attended"
    optimizers.step(own)
    assert watcher.heard == [("first_step", own), ("stepped", own)]
    assert watcher.steps.count == 0


def test_a_step_that_torch_takes_only_to_create_optimizer_state_does_not_count(optimizers):
    own, watcher = Optimizer(), optimizers.watcher

    def get_optimizer_state_dict():
        optimizers.step(own)

    def set_state_dict():
        optimizers.step(own)

    names = {"get_optimizer_state_dict": get_optimizer_state_dict, "set_state_dict": set_state_dict}
    names |= {"get_state_dict": lambda: None, "set_optimizer_state_dict": lambda: None}
    states = ModuleType("states")
    states.__dict__.update(names)
    torch_hooks.patches(watcher)["torch.distributed.checkpoint.state_dict"](states)
    states.get_optimizer_state_dict()
    states.get_state_dict()
    assert (watcher.steps.count, watcher.heard, watcher.handles_states) == (0, [], 0)
    states.set_state_dict()
    assert [name for name, *_ in watcher.heard] == ["loads", "loaded"], "a script continues from what it sets"
    optimizers.step(own)
    assert watcher.steps.count == 1


def test_no_step_is_counted_while_counting_is_off(optimizers):
    optimizers.watcher.steps.off = True
    optimizers.step(Optimizer())
    assert optimizers.watcher.steps.count == 0


class Scaler:
    """torch's GradScaler. `steps`: what its step does."""

    steps = staticmethod(lambda: None)

    def scale(self, outputs):
        return outputs if outputs == "off" else f"{outputs} * 8"

    def step(self, optimizer):
        self.steps()


@pytest.fixture
def scaler():
    kind = type("GradScaler", (Scaler,), {"scale": Scaler.scale, "step": Scaler.step})
    module, watcher = patched("torch.amp.grad_scaler", GradScaler=kind)
    made = module.GradScaler()
    made.watcher = watcher
    return made


def test_a_scaled_loss_is_reported_and_nothing_if_the_scaler_is_off(scaler):
    assert [scaler.scale("loss"), scaler.scale("off")] == ["loss * 8", "off"]
    assert scaler.watcher.heard == [("scaled", scaler, "loss * 8")]


@pytest.mark.parametrize("passed_over", [False, True])
def test_a_scalers_step_is_reported_with_whether_it_was_skipped(scaler, passed_over):
    own = Optimizer()
    scaler.steps = (lambda: None) if passed_over else (lambda: scaler.watcher.steps.stepped(own))
    scaler.step(own)
    assert scaler.watcher.heard == [("scaler_stepped", own, passed_over)]


def test_a_scaler_that_fails_has_made_no_step(scaler):
    scaler.steps = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        scaler.step(Optimizer())
    assert scaler.watcher.heard == []


class Loader:
    """The iterator of torch's DataLoader. `inside`: what it does for the next batch."""

    def __init__(self, inside=lambda: None):
        self.inside = inside

    def __next__(self):
        return self.inside()


@pytest.fixture
def loading():
    kind = type("_BaseDataLoaderIter", (Loader,), {"__next__": Loader.__next__})
    name = "torch.utils.data.dataloader"
    kind.__module__ = name
    other = type("Sampler", (), {"__module__": name})
    return patched(name, Iter=kind, Sampler=other, foreign=Loader)


def test_a_batch_counts_once_and_a_batch_fetched_inside_belongs_to_it(loading):
    module, watcher = loading
    steps, inner = watcher.steps, module.Iter()
    doing = []
    outer = module.Iter(lambda: (doing.append(steps.doing), inner.__next__()))
    next(outer)
    assert (steps.fetches, doing, steps.doing) == (1, ["data"], "")
    assert set(steps._iterators) == {id(outer)}


def test_an_evaluations_batch_does_not_count_for_training(loading):
    module, watcher = loading
    module.grad = False
    next(module.Iter())
    assert (watcher.steps.fetches, watcher.steps.doing) == (0, "")


def test_the_end_of_a_loader_is_noticed_and_an_error_is_not_taken_for_it(loading):
    module, watcher = loading
    ends = iter(())
    loader = module.Iter()
    next(loader)
    loader.inside = lambda: 1 / 0
    with pytest.raises(ZeroDivisionError):
        next(loader)
    assert set(watcher.steps._iterators) == {id(loader)}
    assert watcher.steps.fetches == 1
    loader.inside = lambda: next(ends)
    with pytest.raises(StopIteration):
        next(loader)
    assert watcher.steps._iterators == {}
    assert watcher.steps.doing == ""


def test_a_batch_of_another_thread_is_counted_separately(loading):
    module, watcher = loading
    thread = threading.Thread(target=next, args=(module.Iter(),))
    thread.start()
    thread.join()
    assert (watcher.steps.fetches, watcher.steps.foreign, watcher.steps.doing) == (0, 1, "")


def test_no_batch_is_counted_while_counting_is_off(loading):
    module, watcher = loading
    watcher.steps.off = True
    next(module.Iter())
    assert watcher.steps.fetches == 0


@pytest.mark.parametrize("name", ["torch.serialization", "torch.distributed.checkpoint.state_dict_loader"])
def test_a_load_of_the_script_is_reported_with_its_result(name):
    module, watcher = patched(name, load=lambda path: f"state of {path}")
    assert module.load("last.pt") == "state of last.pt"
    (loads, loaded) = watcher.heard
    assert (loads, loaded[1:3]) == (("loads", "last.pt"), ("loads", "state of last.pt"))


def test_loading_a_safetensors_file_is_reported_too():
    module, watcher = patched("safetensors.torch", load_file=lambda path: {})
    module.load_file("model.safetensors")
    assert [name for name, *_ in watcher.heard] == ["loads", "loaded"]
