"""What the rivals' loops share with each other and with Muster: recipe, batch, schedule; and their one log line."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable

from trainer.recipe import Recipe, load

CLIP, WEIGHT_DECAY, WARMUP = 1.0, 0.01, 50


def options() -> argparse.Namespace:
    """Named as the trainer names them; the defaults are the recipe's."""
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
