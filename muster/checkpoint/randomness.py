"""The random generators of a rank: seed them, save their state for a checkpoint, restore it."""

from __future__ import annotations

import random
from typing import Any

import torch


def seed_all(seed: int) -> None:
    """Seed every generator a recipe is likely to draw from."""
    random.seed(seed)
    torch.manual_seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """This rank's random generators, as plain values and tensors."""
    version, words, gauss = random.getstate()
    # As a tensor: to pickle and read 625 single numbers cost more time than the rest of a small checkpoint.
    python = (version, torch.tensor(words), gauss)
    state: dict[str, Any] = {"python": python, "torch": torch.get_rng_state()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device)
    return state


def restore_random_state(state: dict[str, Any], device: torch.device) -> None:
    """Restore a state that `random_state` returned."""
    version, words, gauss = state["python"]
    random.setstate((version, tuple(torch.as_tensor(words).tolist()), gauss))
    torch.set_rng_state(state["torch"])
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(state["cuda"], device)
