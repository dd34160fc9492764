"""torch.utils.tensorboard, in the old and the new way, between other records."""

import json

import torch
from torch.utils.tensorboard import SummaryWriter

writer, own = SummaryWriter("runs/a"), {}
draw = torch.Generator().manual_seed(0)
for step in range(500):
    for name, more in (
        ("loss", {}),
        ("tensor", {"new_style": True}),
        ("exact", {"new_style": True, "double_precision": True}),
    ):
        value = torch.rand((), generator=draw, dtype=torch.float64 if name == "exact" else torch.float32).item()
        writer.add_scalar(f"train/{name}", value, step, **more)
        own.setdefault(f"train/{name}", []).append([step, value])
    if step % 100 == 0:
        writer.add_histogram("weights", torch.randn(1000, generator=draw), step)
        writer.add_image("picture", torch.rand(3, 200, 200, generator=draw), step)
        writer.add_text("words", "some words", step)
writer.close()
with open("own.json", "w") as file:
    json.dump(own, file)
