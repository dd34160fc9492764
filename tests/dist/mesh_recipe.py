"""A small recipe with features of real models: a stack of blocks, tied weights, a buffer, a layer of uneven size."""

import os

import torch
from torch import nn
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel
from torch.nn import functional as F
from torch.utils.data import TensorDataset

DEFAULTS = {
    "steps": 8,
    "batch": 12,
    "lr": 0.01,
    "clip": 0.1,
    "warmup": 2,
    "log_every": 1,
    "eval_every": 0,
    "checkpoint_every": 4,
}
WIDTH, HEADS = 16, 4


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.norm_think = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.by_head, self.mix = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.think = nn.Sequential(nn.Linear(WIDTH, 40), nn.GELU(), nn.Linear(40, WIDTH))

    def forward(self, x):
        parts = self.by_head(self.norm(x)).unflatten(-1, (-1, 3, WIDTH // HEADS)).permute(3, 0, 2, 1, 4)
        attended = F.scaled_dot_product_attention(*parts, is_causal=True)
        x = x + self.mix(attended.transpose(1, 2).flatten(2))
        return x + self.think(self.norm_think(x))


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(31, WIDTH)
        self.blocks = nn.ModuleList(Block() for _ in range(2))
        self.norm = nn.LayerNorm(WIDTH)
        nn.init.normal_(self.table.weight, std=0.1)  # with torch's default, the scores of a tied table begin too large
        self.register_buffer("scale", torch.ones(1))

    def forward(self, words):
        x = self.table(words)
        for block in self.blocks:
            x = block(x)
        return F.linear(self.norm(x) * self.scale, self.table.weight)


def model():
    return Model()


def tensor_plan(model):
    return {
        "blocks.*.by_head": ColwiseParallel(),
        "blocks.*.mix": RowwiseParallel(),
        "blocks.*.think.0": ColwiseParallel(),
        "blocks.*.think.2": RowwiseParallel(),
    }


def datasets(data):
    def numbered(count):
        ids = torch.arange(count)
        words = (ids[:, None] * 7 + torch.arange(9)[None] ** 2 * (1 + ids[:, None] % 3)) % 31
        return TensorDataset(ids, words)

    return numbered(203), numbered(37)


def loss(model, batch):
    ids, words = batch
    if torch.is_grad_enabled():
        with open(f"{os.environ['SEEN']}/seen-{os.environ['RANK']}", "a") as file:
            file.write(" ".join(str(int(i)) for i in ids) + "\n")
    return F.cross_entropy(model(words[:, :-1]).flatten(0, 1).float(), words[:, 1:].flatten())


def metrics(model, batch):
    return {"number": batch[0].double()}
