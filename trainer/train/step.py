"""One optimizer step on all ranks (loss, learning rate, precision, clipping by the global norm), after a trial pass."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

from muster.data import to_device
from muster.ddp import unchanged

from ..config import Config, refuse_on
from ..mesh import Mesh
from ..recipe import Recipe, blame, build_model, build_plan, compute_loss
from .device_timer import DeviceTimer
from .gradients import fit_optimizer, scale, squares
from .process_group import Group
from .strategy import build_on, choose
from .strategy.units import recompute
from .totals import Totals

_DTYPES = {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}


@dataclass
class Step:
    """The result of one optimizer step: `loss` is the mean of the global batch, times are this rank's milliseconds.

    On a GPU, `grad_norm` may not be computed yet, and `compute_ms` and `wait_ms` belong to the previous step.
    """

    loss: float
    grad_norm: float | Tensor
    not_finite: bool
    stop_asked: bool
    data_ms: float
    compute_ms: float
    wait_ms: float


class Stepper:
    """The model on this rank's device, its optimizer, and the step that changes its weights.

    `micro_batch` is any micro-batch of the run; the trial pass before the first step uses it.
    """

    def __init__(self, config: Config, recipe: Recipe, group: Group, mesh: Mesh, micro_batch: Any) -> None:
        self.config, self.recipe, self.group, self.mesh = config, recipe, group, mesh
        refuse_on(config, mesh, group.device.type)
        model = build_on(mesh, lambda: build_model(recipe))
        plan = build_plan(recipe, model) if mesh.tp > 1 else None
        try_loss = None if config.trust_plan else lambda tried: compute_loss(recipe, tried, micro_batch)
        self._strategy = choose(mesh, model, group.device, plan, try_loss)
        self.model = self._strategy.bare
        if config.recompute:
            recompute(self.model)
        self._timer = DeviceTimer(group.device)
        self._last_gradient_at = self._timer.mark()
        self._update_span: list[tuple[Any, Any]] = []
        self._past: tuple[list[tuple[Any, Any]], tuple[Any, Any]] | None = None
        self._totals = Totals(group.device)
        # True from a step's first change of the state until the loop has counted that step.
        self.updating = False
        self.bad_loss: float | None = None
        in_training = self._strategy.training
        self._forward_model: nn.Module = torch.compile(in_training) if config.compile else in_training  # type: ignore[assignment]
        self.optimizer = fit_optimizer(self._make_optimizer())
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, lr_factor(config))
        self.scaler = torch.amp.GradScaler(group.device.type, enabled=config.precision == "fp16")
        self._parameters = [p for p in self.model.parameters() if p.requires_grad]
        # A rank that holds parts of the gradients needs all ranks to compute their norm: one message carries it and the
        # loss.
        self._norm_of_all = config.clip > 0 and any(isinstance(p, DTensor) for p in self._parameters)
        self._warm_up(to_device(micro_batch, group.device))

    def parts(self) -> dict[str, Any]:
        """The parts of this object that a checkpoint contains."""
        return {
            "model": self.model,
            "optimizer": self.optimizer,
            "scheduler": self.scheduler,
            "scaler": self.scaler,
        }

    def _make_optimizer(self) -> torch.optim.Optimizer:
        if self.recipe.optimizer is not None:
            with blame(self.recipe.path, "optimizer"):
                return self.recipe.optimizer(self.model, self.config.lr)
        return torch.optim.AdamW(self.model.parameters(), lr=self.config.lr, weight_decay=0.01, fused=True)

    def autocast(self) -> Any:
        """The context in which a forward pass has this run's precision."""
        if self.config.precision == "fp32":
            return nullcontext()
        return torch.autocast(self.group.device.type, _DTYPES[self.config.precision])

    def _warm_up(self, micro_batch: Any) -> None:
        """Run one forward and backward pass; its gradients are zero and are discarded.

        After the first backward pass, DDP regroups its gradient buckets. This changes the order in which it adds the
        gradients of three or more ranks, and so the last bit of the sums. After this pass, every step of a fresh or a
        resumed process uses the final buckets, so a resumed run is bit-identical to one that never stopped. The pass
        also shows which gradient is computed last.
        """
        order: list[Tensor] = []
        hooks = [parameter.register_post_accumulate_grad_hook(order.append) for parameter in self._parameters]
        self.model.train()
        with unchanged(self.model, self.group.device):
            (self._loss(micro_batch) * 0).backward()
        for hook in hooks:
            hook.remove()
        if order:
            order[-1].register_post_accumulate_grad_hook(self._note_last_gradient)
        self.optimizer.zero_grad()

    def _note_last_gradient(self, _: Tensor) -> None:
        # From now to the end of the backward pass this rank has nothing left to compute: it waits for the other ranks.
        self._last_gradient_at = self._timer.mark()

    def _loss(self, batch: Any) -> Tensor:
        with self.autocast():
            return compute_loss(self.recipe, self._forward_model, batch)

    def step(self, batches: Iterator[Any], micro_batch_sizes: list[int], stop_asked: bool) -> Step:
        """Run forward and backward over this rank's micro-batches, then one optimizer step.

        Every rank learns whether the mean loss is not finite and whether any rank was asked to stop. If the loss is not
        finite, no rank steps its optimizer.
        """
        mark, data_s = self._timer.mark, 0.0
        losses: list[Tensor] = []
        spans: list[tuple[Any, Any]] = list(self._update_span)
        # Freed here and not after the update, the gradients leave no gap in the heap that the system would reclaim in
        # each step.
        self.optimizer.zero_grad()
        for index, size in enumerate(micro_batch_sizes):
            begin = time.perf_counter()
            batch = to_device(next(batches), self.group.device)
            data_s += time.perf_counter() - begin
            loaded, last, share = mark(), index == len(micro_batch_sizes) - 1, size / self.config.batch
            self._strategy.synchronize(gradients=last)
            loss = self._loss(batch)
            losses.append(loss.detach().float() * (share / self.mesh.tp))  # the ranks of a tp group have the same loss
            if last and not self._norm_of_all:
                # Filled on the device: copying a number from the host would wait for the forward pass.
                stop = torch.full((), float(stop_asked), device=self.group.device)
                self._totals.send(torch.stack((torch.stack(losses).sum(), stop)))
            if last and self._strategy.buffers:
                self._strategy.buffers.send()
            self.scaler.scale(loss * (share * self.mesh.data_world)).backward()  # the strategy averages over the ranks
            spans.append((loaded, self._last_gradient_at if last else mark()))
        if self._norm_of_all:
            self.scaler.unscale_(self.optimizer)
            totals = self._totals_with_norm(losses, stop_asked)
            dist.all_reduce(totals)
        if self._strategy.buffers:
            self._strategy.buffers.wait()
        reduced = mark()
        loss_mean, stops, *norm_squared = totals.tolist() if self._norm_of_all else self._totals.receive()
        finite = math.isfinite(loss_mean)
        if not finite:
            self.bad_loss = next((value for value in map(float, losses) if not math.isfinite(value)), None)
        norm = self._update(*map(math.sqrt, norm_squared)) if finite else math.nan
        # on a GPU the update is still running: it counts as part of the next step
        self._update_span = [(reduced, mark())]
        compute_ms, wait_ms = self._times(spans, (self._last_gradient_at, reduced))
        return Step(loss_mean, norm, not finite, stops > 0, data_s * 1e3, compute_ms, wait_ms)

    def _times(self, computed: list[tuple[Any, Any]], waited: tuple[Any, Any]) -> tuple[float, float]:
        """The milliseconds of the spans; on a GPU, of the previous step's, because this step is still running."""
        if self._timer.on_gpu:
            if not self._past:
                torch.cuda.synchronize(self.group.device)
                self._past = (computed, waited)
            (computed, waited), self._past = self._past, (computed, waited)
        return sum(self._timer.ms(*span) for span in computed), self._timer.ms(*waited)

    def _totals_with_norm(self, losses: list[Tensor], stop_asked: bool) -> Tensor:
        norm = squares(self._parameters)
        return torch.stack((torch.stack(losses).sum().double(), norm.new_full((), float(stop_asked)), norm))

    def _update(self, norm: float | Tensor = math.nan) -> float | Tensor:
        """Clip and step. `norm` is the norm of gradients of which each rank holds parts."""
        self.updating = True
        if self._norm_of_all:
            scale(self._parameters, float(norm), self.config.clip)
        elif self.config.clip:
            self.scaler.unscale_(self.optimizer)
            norm = nn.utils.clip_grad_norm_(self._parameters, self.config.clip)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        if self._strategy.buffers:
            self._strategy.buffers.finish()
        return norm

    def undo(self) -> None:
        """Undo what a step's forward passes have changed, if the step failed before its update."""
        if self._strategy.buffers:
            self._strategy.buffers.restore()


def lr_factor(config: Config) -> Callable[[int], float]:
    """A function from a step to its learning rate, relative to the peak.

    A linear warm-up, then half a cosine down to 0 at the last step.
    """

    def factor(step: int) -> float:
        if step < config.warmup:
            return (step + 1) / config.warmup
        left = max(1, config.steps - config.warmup)
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - config.warmup) / left)))

    return factor
