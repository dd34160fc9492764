"""What the rivals' loops share with each other and with Muster: recipe, batch, schedule, device; and their log line."""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from collections.abc import Callable

import torch

from trainer.recipe import Recipe, load

CLIP, WEIGHT_DECAY, WARMUP = 1.0, 0.01, 50


def options() -> argparse.Namespace:
    """The options, named like the trainer's; the defaults are the recipe's."""
    command = argparse.ArgumentParser()
    command.add_argument("--recipe", default="digits")
    command.add_argument("--steps", type=int, required=True)
    command.add_argument("--log-every", type=int, default=10)
    command.add_argument("--folder", default="", help="where the loop leaves its snapshot")
    chosen = command.parse_args()
    defaults = recipe(chosen.recipe).defaults
    chosen.batch, chosen.lr = defaults["batch"], defaults["lr"]
    return chosen


def recipe(name_or_path: str) -> Recipe:
    """The recipe that Muster trains: its model, data and loss."""
    return load(name_or_path)


def device() -> torch.device:
    """This rank's GPU, or the CPU if there is no GPU."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    chosen = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(chosen)
    return chosen


def model(options: argparse.Namespace) -> torch.nn.Module:
    """The recipe's model, on the CPU; the recipe's model() also decides the memory layout of the weights."""
    return recipe(options.recipe).model()


def schedule(steps: int) -> Callable[[int], float]:
    """Warm-up and cosine decay, the same as in trainer/train/step.py."""

    def factor(step: int) -> float:
        if step < WARMUP:
            return (step + 1) / WARMUP
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / max(1, steps - WARMUP))))

    return factor


def log(step: int, loss: float) -> None:
    """Print one line on rank 0's console: the time, the step and the loss."""
    print(json.dumps({"t": time.time(), "step": step, "loss": loss}), flush=True)
