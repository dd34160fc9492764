"""The blocks of a model: gathered one at a time if the model is sharded, recomputed if memory is short."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial

from torch import nn
from torch.utils.checkpoint import checkpoint

from muster.errors import Refused


def units(model: nn.Module) -> list[nn.Module]:
    """The modules that are gathered one at a time: the composite items of a list or sequence, such as blocks.

    A weight that a unit shares with another module would have two owners: such a unit stays with the whole model.
    """
    items = list(dict.fromkeys(_items(model)))
    inside = {module for item in items for module in item.modules()}
    owners = Counter(weight for item in items for weight in set(item.parameters()))
    owners.update({w for module in model.modules() if module not in inside for w in module.parameters(recurse=False)})
    return [item for item in items if all(owners[weight] == 1 for weight in item.parameters())]


def _items(module: nn.Module) -> Iterator[nn.Module]:
    in_order = isinstance(module, nn.ModuleList | nn.Sequential)
    for child in module.children():
        without_forward = isinstance(child, nn.ModuleList | nn.ModuleDict)
        composite = len(list(child.children())) > 0 and len(list(child.parameters())) > 0
        if in_order and composite and not without_forward:
            yield child
        else:
            yield from _items(child)


def recompute(model: nn.Module) -> None:
    """Let the backward pass recompute each block's activations instead of keeping them.

    Raises Refused without blocks.
    """
    blocks = units(model)
    if not blocks:
        raise Refused(
            "--recompute: the model has no blocks", "put composite modules into an nn.ModuleList or nn.Sequential"
        )
    for block in blocks:
        block.forward = partial(checkpoint, block.forward, use_reentrant=False)
