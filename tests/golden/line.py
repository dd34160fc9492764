"""A line through numbered points."""

import torch
from torch import nn
from torch.utils.data import TensorDataset

DEFAULTS = {"steps": 6, "batch": 8, "checkpoint_every": 3, "eval_every": 3, "log_every": 2}


def model():
    return nn.Linear(2, 1)


def datasets(data):
    x = torch.linspace(-1, 1, 48).reshape(24, 2)
    return TensorDataset(x, x.sum(1, keepdim=True)), TensorDataset(x[:6], x[:6].sum(1, keepdim=True))


def loss(model, batch):
    return ((model(batch[0]) - batch[1]) ** 2).mean()


def metrics(model, batch):
    return {"accuracy": torch.ones(len(batch[0]))}
