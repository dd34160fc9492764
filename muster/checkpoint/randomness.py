"""The random generators of a rank: seed them, save their state for a checkpoint, restore it.

Or, with `seed_step` and `Seeded`, random numbers without stored state: what a step draws depends only on the run's
seed, the step and the share of the data. The generators at the beginning of a step can then be derived from these three
numbers, even if the rank that drew from them is lost, and a checkpoint contains no generator states.
"""

from __future__ import annotations

import hashlib
import random
import sys
from typing import Any

import torch
from torch.utils.data import Dataset


def seed_all(seed: int) -> None:
    """Seed every generator that a recipe is likely to draw from."""
    random.seed(seed)
    torch.manual_seed(seed)


def random_state(device: torch.device) -> dict[str, Any]:
    """The state of this rank's random generators, as plain values and tensors."""
    version, words, gauss = random.getstate()
    # As a tensor: pickling and reading 625 separate numbers took longer than the rest of a small checkpoint.
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


def seed_step(seed: int, step: int, share: int, device: torch.device) -> None:
    """Seed every generator that a recipe is likely to draw from, before `step` on one `share` of the data."""
    number = _number(seed, step, share)
    _seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


class Seeded(Dataset[Any]):
    """`dataset` for loader processes, seeded anew for each list of samples by the list's number.

    A loader process gets `enumerate(lists)`. Without this class, its generators would continue from list to list, and a
    resumed run would draw other numbers.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, share: int) -> None:
        self._dataset, self._seed, self._share = dataset, seed, share

    def __getitems__(self, numbered: tuple[int, list[int]]) -> list[Any]:
        """The samples of a list. Its collate function runs after this and draws from the same generators."""
        place, indices = numbered
        _seed(_number(self._seed, place, self._share))
        together = getattr(self._dataset, "__getitems__", None)
        return list(together(indices)) if together else [self._dataset[index] for index in indices]


def _number(seed: int, step: int, share: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {share}".encode()).digest()[:7])


def _seed(number: int) -> None:
    random.seed(number)
    torch.default_generator.manual_seed(number)  # torch.manual_seed seeds every kind of device: 99 us instead of 2
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number % 2**32)
