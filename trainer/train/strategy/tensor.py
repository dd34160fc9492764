"""Tensor parallelism: the ranks of a group each compute a part of a layer, by the plan that the recipe gives.

torch applies any plan, and a wrong one trains without an error: fused attention weights that are split by columns mix
up heads, or a bias is added once on every rank. So, before the first step, the split model must compute the loss and
every gradient of the whole model, in fp32, with weights that are not a special case.
"""

from __future__ import annotations

import copy
import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, Store  # type: ignore[attr-defined]
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.rendezvous import rendezvous
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from muster import exchange
from muster.errors import Refused, TrainError

from ...node.ending.peer_errors import error_reports_lost_peer
from .outline import fill, give_memory, whole_values

LIMIT = 1e-5
_NOISE = 0.05
# The other ranks do the same work as the rank that fails, so they finish soon after it.
ALONE_SECONDS = 5.0
_attempts = itertools.count()
_PLAN_HINT = "correct the recipe's tensor_plan (muster docs which-mesh); --trust-plan trains with it as it is"
Plan = Mapping[str, ParallelStyle]


def cut(model: nn.Module, tp: DeviceMesh, plan: Plan) -> nn.Module:
    """Split `model` along the mesh `tp`. Raises Refused if the plan has an unknown module, or splits nothing."""
    names = [name for name, _ in model.named_modules()]
    for pattern, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise Refused(f"tensor_plan: {pattern}: a {type(style).__name__}, not a torch ParallelStyle", _PLAN_HINT)
        if not any(fnmatchcase(name, pattern) for name in names):
            raise Refused(f"tensor_plan: {pattern}: the model has no such module", f"it has {', '.join(names[1:9])}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallelize_module(model, tp, dict(plan))
    if not any(isinstance(weight, DTensor) for weight in model.parameters()):
        raise Refused("tensor_plan: it shards no weight", "name modules with weights: muster docs which-mesh")
    return model


def check(
    model: nn.Module, values: Mapping[str, Tensor], tp: DeviceMesh, plan: Plan, loss: Callable[[nn.Module], Tensor]
) -> None:
    """Compare the split model with the whole one, on the CPU.

    `loss` computes the loss of one batch, which is the same on the ranks of `tp`. `model` is an outline, `values` are
    rank 0's: only rank 0 has the whole model, the other ranks compute with their parts.

    Raises Refused on all ranks if the two models differ, or if one of them cannot compute, so that nothing can be
    compared.
    """
    device, whole, expected = torch.device("cpu"), None, list[float]()
    store = PrefixStore("tensor_plan", next(rendezvous("env://"))[0])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        parted = copy.deepcopy(model).to(torch.float32).eval()
        if dist.get_rank() == 0:
            whole = _disturbed(copy.deepcopy(parted), values)
            _agree(store, lambda: expected.append(_backward(whole, loss)))
        else:
            _agree(store, lambda: None)
        _agree(store, lambda: cut(parted, tp, plan))
        fill(parted, whole_values(whole) if whole else {}, device)
        _agree(store, lambda: _compare(whole, expected, parted, _backward(parted, loss)))


def _agree(store: Store, attempt: Callable[[], object]) -> None:
    """Call `attempt` on each rank. Raises Refused on all ranks, with the message of the first that raises.

    A rank that fails alone leaves the others in a collective, where they cannot receive its message. Then it raises
    Refused on its own, and its exit ends the others' collective.
    """
    fault = ""
    try:
        attempt()
    except Refused as refusal:
        fault = refusal.message  # a fault of this plan
    except Exception as error:
        if error_reports_lost_peer(error):
            raise
        words = error.message if isinstance(error, TrainError) else f"{type(error).__name__}: {error}"
        fault = f"could not be checked in fp32 on the CPU: {words.strip().splitlines()[0]}"
    if not _others_come(store, bool(fault)):
        raise Refused(
            f"tensor_plan: {fault.removeprefix('tensor_plan: ')} (on rank {dist.get_rank()} alone)", _PLAN_HINT
        )
    faults = exchange.all_of(fault)
    if reason := next(filter(None, faults), ""):
        raise Refused(f"tensor_plan: {reason.removeprefix('tensor_plan: ')}", _PLAN_HINT)


def _others_come(store: Store, waits: bool) -> bool:
    """Count this rank as done with its attempt. If it `waits`: whether all others are done within ALONE_SECONDS."""
    name, limit = str(next(_attempts)), time.monotonic() + ALONE_SECONDS
    done = store.add(name, 1)
    while waits and done < dist.get_world_size():
        if time.monotonic() > limit:
            return False
        time.sleep(0.02)
        done = store.add(name, 0)
    return True


def _disturbed(outline: nn.Module, values: Mapping[str, Tensor]) -> nn.Module:
    """The whole model with random noise on every weight: fresh zeros and ones would hide a bias that is added twice."""
    model = give_memory(outline, torch.device("cpu"))
    with torch.no_grad():
        for name, value in (*model.named_parameters(), *model.named_buffers()):
            value.copy_(values[name])
        for weight in model.parameters():
            if weight.is_floating_point():
                weight.add_(torch.randn_like(weight), alpha=_NOISE)
    return model


def _backward(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> float:
    value = loss(model)
    value.backward()
    return float(value.detach())


def _compare(whole: nn.Module | None, expected: list[float], parted: nn.Module, got: float) -> None:
    """Raise Refused on the rank that has the `whole` model if a difference is above LIMIT; it names the largest."""
    together = _whole_gradients(parted)
    if whole is None:
        for _ in together:
            pass  # the rank with the whole model needs this rank's parts
        return
    gradients = {name: weight.grad for name, weight in whole.named_parameters(remove_duplicate=False)}
    largest = max((float(value.abs().max()) for value in gradients.values() if value is not None), default=0.0)
    worst, culprit, lacks = 0.0, "", ""
    for name, ours in together:
        theirs = gradients[name]
        if ours is None or theirs is None:
            lacks = lacks or (name if ours is not theirs else "")
            continue
        # A gradient that is zero except for rounding has no digits to compare: the largest of all gradients then sets
        # the scale.
        scale = max(float(theirs.abs().max()), 0.01 * largest)
        apart = float((ours - theirs).abs().max()) / scale if scale else 0.0
        if not apart <= worst:
            worst, culprit = apart, name
    if not abs(got - expected[0]) <= LIMIT * abs(expected[0]):
        raise Refused(f"the sharded model's loss is {got:.6g}, the whole model's loss is {expected[0]:.6g}")
    if lacks:
        raise Refused(f"{lacks} has a gradient in only one of the two models")
    if not worst <= LIMIT:
        raise Refused(f"the gradient of {culprit} differs by {worst:.1e} from the whole model's")


def _whole_gradients(parted: nn.Module) -> Iterator[tuple[str, Tensor | None]]:
    """Each gradient of the split model, gathered to a whole one: all ranks must iterate over all of them."""
    for name, weight in parted.named_parameters():
        yield name, weight.grad.full_tensor() if isinstance(weight.grad, DTensor) else weight.grad
