"""One optimizer step on all ranks: DDP, mixed precision, accumulation, clipping, and the tally all ranks share."""

from __future__ import annotations

import math
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from muster.data import to_device
from muster.errors import Refused

from ..config import Config
from ..recipe import Recipe, blame, build_model, compute_loss
from .device_timer import Clock
from .process_group import Group
from .rehearsal import lay_out, rehearsal

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Step:
    """What one optimizer step came to: `loss` is the global batch's mean, times are this rank's, in milliseconds."""

    loss: float
    grad_norm: float
    not_finite: int
    stop_asked: int
    data_ms: float
    compute_ms: float
    wait_ms: float


class Strategy:
    """The model on this rank's device and all that moves its weights. `piece`: any micro-batch, to rehearse with."""

    def __init__(self, config: Config, recipe: Recipe, group: Group, world: int, piece: Any) -> None:
        self.config, self.recipe, self.group, self.world = config, recipe, group, world
        self.model = build_model(recipe).to(group.device)
        piece = to_device(piece, group.device)
        if group.device.type == "cpu" or config.precision != "fp32":
            lay_out(self.model, group.device, lambda: self._loss(self.model, piece))
        on_gpu = group.device.type == "cuda"
        if config.compile and not on_gpu and not any(map(shutil.which, (os.environ.get("CXX", "g++"), "clang++"))):
            raise Refused(
                "--compile: on CPUs torch.compile needs a C++ compiler, and there is none here", "install g++"
            )
        self._carrier = _Carrier(self.model, group.device)
        self._ddp = DistributedDataParallel(
            self._carrier, device_ids=[group.device.index] if on_gpu else None, gradient_as_bucket_view=True
        )
        self._clock = Clock(group.device)
        self._reduced_from = self._clock.mark()
        self._update_span: list[tuple[Any, Any]] = []
        self.bad_loss: float | None = None
        self._call: nn.Module = torch.compile(self._ddp) if config.compile else self._ddp  # type: ignore[assignment]
        self.optimizer = self._make_optimizer()
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lr_factor(config))
        self.scaler = torch.amp.GradScaler(group.device.type, enabled=config.precision == "fp16")
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        self._settle(piece)

    def _make_optimizer(self) -> torch.optim.Optimizer:
        if self.recipe.optimizer is not None:
            with blame(self.recipe, "optimizer"):
                return self.recipe.optimizer(self.model, self.config.lr)
        return torch.optim.AdamW(self.model.parameters(), lr=self.config.lr, weight_decay=0.01, fused=True)

    def _all_computed(self, _: Tensor) -> None:
        # Called when the last gradient of a backward is there: what passes between this and the end of backward is
        # time in which nothing was left to compute, i.e. waiting for the network and the other ranks.
        self._reduced_from = self._clock.mark()

    def autocast(self) -> Any:
        """The context in which this run's precision computes a forward pass."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.group.device.type, _DTYPES[self.config.precision])

    def _settle(self, piece: Any) -> None:
        """One pass forward and back over `piece`.

        After the first backward DDP regroups its gradient buckets, which changes the order in which three or more
        ranks' gradients are added, hence the last bit of the sums. Done here, every real step of a fresh or a resumed
        process uses the final buckets, and a resumed run is bit-identical to one that never stopped. It also shows
        whose gradient comes last.
        """
        with rehearsal(self.model, self.group.device):
            loss = self._loss(self._call, piece)
            order: list[Tensor] = []
            watchers = [parameter.register_post_accumulate_grad_hook(order.append) for parameter in self._parameters]
            self._carrier.backward(loss * 0, loss.detach(), 0.0)
        for watcher in watchers:
            watcher.remove()
        if order:
            order[-1].register_post_accumulate_grad_hook(self._all_computed)
        self._clear_gradients()

    def _loss(self, model: nn.Module, batch: Any) -> Tensor:
        with self.autocast():
            return compute_loss(self.recipe, model, batch)

    def step(self, batches: Iterator[Any], sizes: list[int], stop_asked: bool) -> Step:
        """Forward and back over this rank's micro-batches of `sizes` samples, then one optimizer step.

        Where a rank's loss is not finite, or one was asked to stop, every rank learns it here; in the first case no
        rank steps its optimizer.
        """
        mark, data_s = self._clock.mark, 0.0
        losses: list[Tensor] = []
        spans: list[tuple[Any, Any]] = list(self._update_span)
        for index, size in enumerate(sizes):
            begin = time.perf_counter()
            batch = to_device(next(batches), self.group.device)
            data_s += time.perf_counter() - begin
            loaded, last, share = mark(), index == len(sizes) - 1, size * self.world / self.config.batch
            loss = self._forward(batch, last)
            losses.append(loss.detach())
            stop = self.world * float(stop_asked and last)
            self._carrier.backward(self.scaler.scale(loss * share), losses[-1] * share, stop)
            spans.append((loaded, self._reduced_from if last else mark()))
        reduced = mark()
        loss_mean, stops = self._carrier.tally()  # on a GPU this waits for all that was marked so far
        finite = math.isfinite(loss_mean)
        if not finite:
            self.bad_loss = next((value for value in map(float, losses) if not math.isfinite(value)), None)
        norm = self._update() if finite else math.nan
        self._update_span = [(reduced, mark())]  # its end has not passed yet on a GPU: it counts with the next step
        compute_ms = sum(self._clock.ms(*span) for span in spans)
        wait_ms = self._clock.ms(self._reduced_from, reduced)
        return Step(loss_mean, norm, not finite, round(stops), data_s * 1e3, compute_ms, wait_ms)

    def _forward(self, batch: Any, last: bool) -> Tensor:
        self._ddp.require_backward_grad_sync = last  # what `no_sync` sets, without its context for every micro-batch
        return self._loss(self._call, batch)

    def _update(self) -> float:
        norm = math.nan
        if self.config.clip:
            self.scaler.unscale_(self.optimizer)
            norm = float(nn.utils.clip_grad_norm_(self._parameters, self.config.clip))
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self._clear_gradients()
        return norm

    def _clear_gradients(self) -> None:
        self.optimizer.zero_grad()
        self._carrier.word.grad = None


class _Carrier(nn.Module):
    """The model, and beside it one parameter whose gradient carries this step's loss and stop request to all ranks.

    DDP averages it together with the model's own gradients: what the ranks must tell each other costs no message of
    its own. No optimizer knows the parameter.
    """

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        super().__init__()
        self.model = model
        self.word = nn.Parameter(torch.zeros(2, device=device))

    def forward(self, *arguments: Any, **named: Any) -> Any:
        return self.model(*arguments, **named)

    def backward(self, scaled: Tensor, loss: Tensor, stop: float) -> None:
        """Backward from `scaled` for the model, with `loss` and `stop` (scalars) as the gradient of `word`."""
        word = torch.stack((loss.float(), self.word.new_tensor(stop)))
        torch.autograd.backward((scaled, self.word), (None, word))

    def tally(self) -> tuple[float, float]:
        """The ranks' mean of what `backward` took, summed over a step's micro-batches."""
        assert self.word.grad is not None
        loss, stop = self.word.grad.tolist()
        return loss, stop


def lr_factor(config: Config) -> Callable[[int], float]:
    """Learning rate over its peak at a step: linear warm-up, then half a cosine to 0 at the last step."""

    def factor(step: int) -> float:
        if step < config.warmup:
            return (step + 1) / config.warmup
        left = max(1, config.steps - config.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - config.warmup) / left)))

    return factor
