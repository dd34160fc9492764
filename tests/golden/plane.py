"""A plane through numbered points, with two layers: each of two ranks has a part of both."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

DEFAULTS = {"steps": 6, "batch": 8, "checkpoint_every": 3, "eval_every": 3, "log_every": 2, "keep": 1}


def model():
    return nn.Sequential(nn.Linear(2, 4), nn.Linear(4, 2))


def datasets(data):
    x = torch.linspace(-1, 1, 48).reshape(24, 2)
    return TensorDataset(x, x.flip(1)), TensorDataset(x[:6], x[:6].flip(1))


def loss(model, batch):
    return ((model(batch[0]) - batch[1]) ** 2).mean()


def metrics(model, batch):
    return {"accuracy": torch.ones(len(batch[0]))}
