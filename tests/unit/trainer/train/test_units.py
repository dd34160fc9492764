"""If recomputation is asked for, backward computes each block of a model again."""

import pytest
import torch
from torch import nn

from muster.errors import Refused
from trainer.train.strategy.units import recompute

pytestmark = pytest.mark.torch


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.drop, self.passes = nn.Linear(3, 3), nn.Dropout(0.5), 0

    def forward(self, x):
        self.passes += 1
        return self.drop(torch.tanh(self.layer(x)))


def gradients(model):
    torch.manual_seed(1)
    model(torch.ones(2, 3)).sum().backward()
    return [parameter.grad.clone() for parameter in model.parameters()]


def test_backward_computes_each_block_again_with_the_same_random_numbers():
    torch.manual_seed(0)
    kept = nn.Sequential(Block(), Block())
    again = nn.Sequential(Block(), Block())
    again.load_state_dict(kept.state_dict())
    recompute(again)
    assert all(map(torch.equal, gradients(kept), gradients(again)))
    assert [block.passes for block in (*kept, *again)] == [1, 1, 2, 2]
    assert list(again.state_dict()) == list(kept.state_dict())


def test_a_model_without_blocks_is_refused():
    with pytest.raises(Refused, match="no blocks"):
        recompute(nn.Linear(3, 3))
