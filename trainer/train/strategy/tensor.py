"""Tensor parallelism: the ranks of a group each compute a part of a layer, by the plan that the recipe gives.

torch applies any plan, and a wrong one trains without an error: fused attention weights that are cut by columns mix up
heads, a bias is added once on every rank. So, before the first step, the cut model must come to the loss and to every
gradient of the whole one, in fp32, at weights that are no special case.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase

import torch
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ParallelStyle, parallelize_module

from muster import exchange
from muster.errors import Refused, TrainError

from ...node.peer_errors import lost_peer

LIMIT = 1e-5
_NOISE = 0.05
_TRUST = "correct the recipe's tensor_plan (docs/parallel.md); --trust-plan trains with it as it is"
Plan = Mapping[str, ParallelStyle]


def cut(model: nn.Module, tp: DeviceMesh, plan: Plan) -> nn.Module:
    """`model` cut along the mesh `tp`. Raises Refused if the plan names a module that there is not, or cuts nothing."""
    names = [name for name, _ in model.named_modules()]
    for pattern, style in plan.items():
        if not isinstance(style, ParallelStyle):
            raise Refused(f"tensor_plan: {pattern}: a {type(style).__name__}, not a ParallelStyle of torch", _TRUST)
        if not any(fnmatchcase(name, pattern) for name in names):
            raise Refused(f"tensor_plan: {pattern}: the model has no such module", f"it has {', '.join(names[1:9])}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        parallelize_module(model, tp, dict(plan))
    if not any(isinstance(weight, DTensor) for weight in model.parameters()):
        raise Refused("tensor_plan: it cuts no weight", "name modules with weights: docs/parallel.md")
    return model


def check(model: nn.Module, tp: DeviceMesh, plan: Plan, loss: Callable[[nn.Module], Tensor]) -> None:
    """Compare the cut model with the whole one, on the CPU: `loss` is that of one batch, the same on the ranks of `tp`.

    Raises Refused, on all ranks alike, if they differ, or if one of them cannot compute: then it could not tell.
    """
    device = torch.device("cpu")
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        whole = copy.deepcopy(model).to(device, torch.float32).eval()
        _disturb(whole)
        parted = copy.deepcopy(whole)
        try:
            cut(parted, tp, plan)
            expected, got = float(_backward(whole, loss)), float(_backward(parted, loss))
            fault = _difference(whole, parted, expected, got)
        except Refused as refusal:
            fault = refusal.message  # of this plan
        except Exception as error:
            if lost_peer(error):
                raise
            words = error.message if isinstance(error, TrainError) else f"{type(error).__name__}: {error}"
            fault = f"could not be tried in fp32 on the CPU: {words.strip().splitlines()[0]}"
    faults = exchange.broadcast(exchange.gather(fault))
    if reason := next(filter(None, faults), ""):
        raise Refused(f"tensor_plan: {reason.removeprefix('tensor_plan: ')}", _TRUST)


def _disturb(model: nn.Module) -> None:
    """Move every weight: zeros and ones of a fresh model would hide a bias that is added twice."""
    with torch.no_grad():
        for weight in model.parameters():
            if weight.is_floating_point():
                weight.add_(torch.randn_like(weight), alpha=_NOISE)


def _backward(model: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Tensor:
    value = loss(model)
    value.backward()
    return value.detach()


def _difference(whole: nn.Module, parted: nn.Module, expected: float, got: float) -> str:
    """The largest difference above LIMIT, in words; empty if there is none."""
    if not abs(got - expected) <= LIMIT * abs(expected):
        return f"the cut model's loss is {got:.6g}, the whole one's {expected:.6g}"
    gradients = {name: weight.grad for name, weight in whole.named_parameters()}
    largest = max((float(value.abs().max()) for value in gradients.values() if value is not None), default=0.0)
    worst, culprit = 0.0, ""
    for name, weight in parted.named_parameters():
        ours, theirs = weight.grad, gradients[name]
        if ours is None or theirs is None:
            if ours is not theirs:
                return f"{name} has a gradient only in one of the two models"
            continue
        together = ours.full_tensor() if isinstance(ours, DTensor) else ours
        # A gradient that is zero but for rounding has no digits to compare: the largest of all gives the scale then.
        scale = max(float(theirs.abs().max()), 0.01 * largest)
        apart = float((together - theirs).abs().max()) / scale if scale else 0.0
        if not apart <= worst:
            worst, culprit = apart, name
    return "" if worst <= LIMIT else f"the gradient of {culprit} is {worst:.1e} apart from the whole model's"
