"""FSDP2, HSDP and tp (refused without a plan): each rank has a part of every weight, gradient and optimizer state.

`model` may be an outline (outline.py) on all ranks except rank 0.

A layer's weights are gathered before it computes, and freed afterwards. With `dp_replicate` the parts have copies,
whose gradients are averaged. With `tp` the layers are split first (tensor.py).
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import FSDPModule, fully_shard

from muster.errors import Refused

from ...mesh import AXES, Mesh
from ..buffers import Buffers
from . import Plan, TryLoss, tensor
from .outline import fill, hollow, whole_values
from .units import units


class Sharded:
    """The model in `dp_shard` parts, each split again into `tp` parts."""

    def __init__(
        self, model: nn.Module, mesh: Mesh, device: torch.device, plan: Plan | None, try_loss: TryLoss | None
    ) -> None:
        axes = init_device_mesh(device.type, mesh.shape, mesh_dim_names=AXES)
        _contiguous(model)
        whole = whole_values(model)
        self.bare = self.training = hollow(model)
        self.buffers: Buffers | None = None
        self._root: FSDPModule | None = None
        if mesh.tp > 1:
            if plan is None:
                raise Refused(
                    f"--mesh {mesh}: the recipe has no tensor_plan(model)",
                    "muster docs which-mesh shows how to write one",
                )
            if try_loss:
                on_cpu = axes if device.type == "cpu" else init_device_mesh("cpu", mesh.shape, mesh_dim_names=AXES)
                tensor.check(model, whole, on_cpu["tp"], plan, try_loss)
            tensor.cut(model, axes["tp"], plan)
        if mesh.data_world > 1:
            self._share(model, axes["dp_replicate", "dp_shard"] if mesh.dp_replicate > 1 else axes["dp_shard"])
        fill(model, whole, device)
        if any(True for _ in model.buffers()):
            model.register_forward_pre_hook(_share_buffers)

    def _share(self, model: nn.Module, divided: DeviceMesh) -> None:
        for unit in units(model):
            fully_shard(unit, mesh=divided)
        root = fully_shard(model, mesh=divided)
        assert isinstance(root, FSDPModule)
        self._root = root

    def synchronize(self, gradients: bool) -> None:
        """Before the last backward pass of a step, a rank accumulates its own whole gradients."""
        if self._root is not None:
            self._root.set_requires_gradient_sync(gradients)


def _share_buffers(model: nn.Module, _: object) -> None:
    """Before each training pass, broadcast rank 0's buffers as DDP does.

    A batch norm's means are the same on all ranks.
    """
    if model.training:
        for buffer in model.buffers():
            dist.broadcast(buffer, 0)


def _contiguous(model: nn.Module) -> None:
    """Copy weights that are not contiguous (channels-last ones): fully_shard accepts only contiguous weights."""
    for parameter in model.parameters():
        parameter.data = parameter.data.contiguous()
