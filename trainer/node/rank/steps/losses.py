"""The loss of rank 0's steps: the tensors from which `backward` began since the last step, read with a delay.

Only some steps are looked at (a few per second). In these, the scalar is copied on its device. From a GPU, the copy
goes to pinned memory without waiting, and is read once it has arrived. No reference to the graph is held.
"""

from __future__ import annotations

import math
import sys
from typing import Any
from weakref import ref

# Libraries that scale losses in their own ways, so that a loss cannot be read.
_OTHER_SCALERS = ("deepspeed", "apex", "colossalai")
_MOST_OPTIMIZERS = 8

Root = tuple[Any, Any]  # a copy of the scalar, and of the scale to divide it by, or None


class Losses:
    """Takes the roots of `backward` between two steps; `points` has the losses that were read."""

    def __init__(self) -> None:
        self.points: list[dict[str, float]] = []
        self.why_not = ""
        self.failures = self.seen = 0
        self._groups: list[list[Root]] = []
        self._bad, self._mixed = "", False
        self._optimizers: dict[int, Any] = {}
        self._evaluations: dict[int, int] = {}
        self._pending: dict[str, Any] | None = None
        self._scaler: Any = None
        self._scaled: set[int] = set()

    def scaled(self, scaler: Any, outputs: Any) -> None:
        """A GradScaler returned these: the next `backward` begins from them, or from something that depends on them."""
        self._scaler = scaler
        many = outputs if isinstance(outputs, (list, tuple)) else (outputs,)
        self._scaled.update(map(id, many))

    def unscaled(self, passed_over: bool) -> None:
        """A GradScaler made or skipped (`passed_over`) a step: the gradients so far belong to no later step."""
        self._scaled.clear()
        if passed_over:
            self._groups, self._bad, self._mixed = [], "", False

    def root(self, torch: Any, tensors: Any, plain: bool) -> None:
        """`backward` begins from `tensors`. `plain`: without gradients or inputs as arguments."""
        self.settle(torch)
        many = tuple(tensors) if isinstance(tensors, (list, tuple)) else (tensors,)
        self._bad = self._bad or _unreadable(torch, many, plain)
        if self._bad:
            return
        if self._groups:
            known = [optimizer for reference in self._optimizers.values() if (optimizer := reference())]
            have = [_has_gradients(optimizer) for optimizer in known[:_MOST_OPTIMIZERS]]
            if have and not any(have):
                self._groups.append([])
            self._mixed = self._mixed or (any(have) and not all(have))
        else:
            self._groups = [[]]
            for reference in self._optimizers.values():
                self._closures(reference())
        self._groups[-1] += [(root.detach().clone(), self._scale(root)) for root in many]

    def _scale(self, root: Any) -> Any:
        if not self._scaled:
            return None
        if id(root) in self._scaled:
            self._scaled.discard(id(root))
        else:
            self._scaled.clear()
        return self._scaler._scale.detach().clone()

    def stepped(self, torch: Any, optimizer: Any, step: int, first: bool) -> None:
        """An optimizer stepped. If it is `first` in its round, the roots since the last step are this step's loss."""
        groups, bad = self._groups, self._bad
        self._groups, self._bad = [], ""
        reference = self._optimizers.get(id(optimizer))
        known = reference is not None and reference() is optimizer  # else the id was that of an optimizer that is gone
        if not known:
            self._optimizers[id(optimizer)] = ref(optimizer)
            self._evaluations.pop(id(optimizer), None)
        evaluations = self._closures(optimizer)
        if not first:
            if self._mixed and not groups and self._pending and len(self._pending["roots"]) > 1:
                self._pending = None  # two losses, then two steps: it is unknown which loss belongs to which step
                self._fail(
                    "several losses and several optimizers are used together: nothing shows which belong together"
                )
            self._mixed = False
            return
        if bad:
            self._fail(bad)
        elif groups:
            roots = _of_first(groups, evaluations) if evaluations else groups[-1]
            if roots and (known or evaluations or len(roots) == 1):
                self._pending = {"step": step, "lr": _rate(optimizer), "roots": roots}
                self._send(torch)

    def _closures(self, optimizer: Any) -> int:
        """How often an LBFGS optimizer computed the loss in this step; 0 for other optimizers, which do so once."""
        if type(optimizer).__name__ != "LBFGS":
            return 0
        state = optimizer.state.get(optimizer.param_groups[0]["params"][0], {})  # indexing it would create an entry
        before, now = self._evaluations.get(id(optimizer), 0), int(state.get("func_evals", 0))
        self._evaluations[id(optimizer)] = now
        return max(now - before, 0)  # the count may be lower after load_state_dict

    def _fail(self, why: str) -> None:
        self.failures, self.why_not = self.failures + 1, why

    def _send(self, torch: Any) -> None:
        """If the loss is on a GPU, start the copy to the CPU, and record an event at its end."""
        pending = self._pending
        if not pending or pending["roots"][0][0].device.type != "cuda":
            return
        flat = [root for pair in pending["roots"] for root in pair if root is not None]
        pending["here"], pending["come"] = copy_from_gpu(torch, flat)

    def settle(self, torch: Any) -> None:
        """Read the copied values, if they can be read without waiting."""
        pending = self._pending
        if not pending or would_be_noticed(torch):
            return
        if "come" in pending:
            if torch.cuda.is_current_stream_capturing() or not pending["come"].query():
                return
            values = iter(pending["here"].tolist())
        else:
            values = (float(value) for pair in pending["roots"] for value in pair if value is not None)
        self._pending = None
        # If the scale has become 0, the loss cannot be computed from the scaled one.
        loss = sum(next(values) / (1.0 if scale is None else next(values) or math.nan) for _, scale in pending["roots"])
        self.seen += 1
        self.points.append({"step": pending["step"], "loss": loss, **pending["lr"]})

    @property
    def is_pending(self) -> bool:
        """Whether a value is still to be read."""
        return self._pending is not None


def copy_from_gpu(torch: Any, scalars: list[Any]) -> tuple[Any, Any]:
    """Copy scalars from a GPU without waiting: returns the CPU tensor, and the event after which it has the numbers."""
    device = scalars[0].device
    with torch.cuda.device(device):
        flat = torch.stack([each.reshape(()).to(device, torch.float64, non_blocking=True) for each in scalars])
        here = torch.empty(len(scalars), dtype=torch.float64, device="cpu", pin_memory=True)
        here.copy_(flat, non_blocking=True)
        come = torch.cuda.Event()
        come.record()
    return here, come


def would_be_noticed(torch: Any) -> bool:
    """Whether the script would notice operations on tensors here: by its own dispatch mode, or by a profiler."""
    return bool(torch._C._len_torch_dispatch_stack() or torch.autograd._profiler_enabled())


def _unreadable(torch: Any, many: tuple[Any, ...], plain: bool) -> str:
    """Why the loss cannot be read from these roots; empty if it can."""
    if not plain:
        return "backward is called with explicit gradients or inputs"
    if other := next((name for name in _OTHER_SCALERS if name in sys.modules), ""):
        return f"{other} scales the losses itself"
    for root in many:
        if type(root) is not torch.Tensor:
            return f"backward starts from a {type(root).__name__}"
        if root.numel() != 1 or root.is_complex():
            return "backward starts from a tensor that is not a single real number"
        if root.device.type not in ("cpu", "cuda"):
            return f"Muster does not read a loss on {root.device.type}, because that would wait for the device"
    if would_be_noticed(torch):
        return "the script runs under a torch dispatch mode or profiler, which would notice that Muster reads the loss"
    if any(root.device.type == "cuda" for root in many) and torch.cuda.is_current_stream_capturing():
        return "a CUDA graph replays the steps"
    return ""


def _has_gradients(optimizer: Any) -> bool:
    return any(parameter.grad is not None for group in optimizer.param_groups for parameter in group["params"])


def _of_first(groups: list[list[Root]], evaluations: int) -> list[Root]:
    """The roots of the first of several evaluations; empty if these are not known."""
    if len(groups) >= evaluations:
        return groups[-evaluations]
    roots = groups[-1]
    return roots[: len(roots) // evaluations] if len(groups) == 1 and len(roots) % evaluations == 0 else []


def _rate(optimizer: Any) -> dict[str, float]:
    rate = optimizer.param_groups[0].get("lr")
    return {"lr": rate} if isinstance(rate, (int, float)) else {}
