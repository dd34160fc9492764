"""What the rivals' loops share with each other and with Muster: recipe, batch, schedule, device; and their log line."""

from __future__ import annotations

import argparse
import importlib
import json
import math
import os
import time
from collections.abc import Callable
from types import ModuleType

import torch

CLIP, WEIGHT_DECAY, WARMUP = 1.0, 0.01, 50


def options() -> argparse.Namespace:
    """Named as the trainer names them; the defaults are the recipe's."""
    command = argparse.ArgumentParser()
    command.add_argument("--recipe", default="digits")
    command.add_argument("--steps", type=int, required=True)
    command.add_argument("--log-every", type=int, default=10)
    command.add_argument("--channels-last", action="store_true", help="lay convolutions out as the trainer does")
    command.add_argument("--folder", default="", help="where the loop leaves its snapshot")
    chosen = command.parse_args()
    defaults = recipe(chosen.recipe).DEFAULTS
    chosen.batch, chosen.lr = defaults["batch"], defaults["lr"]
    return chosen


def recipe(name: str) -> ModuleType:
    """The recipe's module, built-in or by its dotted name: its model, data and loss are the ones Muster trains."""
    return importlib.import_module(name if "." in name else f"trainer.recipes.{name}")


def device() -> torch.device:
    """This rank's GPU; the CPU where there is none."""
    if not torch.cuda.is_available():
        return torch.device("cpu")
    found = torch.device("cuda", int(os.environ["LOCAL_RANK"]))
    torch.cuda.set_device(found)
    return found


def model(options: argparse.Namespace) -> torch.nn.Module:
    """The recipe's model, laid out as `options` say, on the CPU."""
    made: torch.nn.Module = recipe(options.recipe).model()
    return made.to(memory_format=torch.channels_last) if options.channels_last else made


def schedule(steps: int) -> Callable[[int], float]:
    """Warm-up and cosine, as trainer/train/strategy.py has them."""

    def factor(step: int) -> float:
        if step < WARMUP:
            return (step + 1) / WARMUP
        return 0.5 * (1 + math.cos(math.pi * min(1.0, (step - WARMUP) / max(1, steps - WARMUP))))

    return factor


def log(step: int, loss: float) -> None:
    """One line on the console, on rank 0: when it got how far."""
    print(json.dumps({"t": time.time(), "step": step, "loss": loss}), flush=True)
