"""Random numbers without memory: what a step draws follows from the run's seed, the step and the share of the data.

So the generators at the beginning of a step follow from these numbers, also when the rank that drew from
them is lost, and a checkpoint holds none of their states.
"""

from __future__ import annotations

import hashlib
import random
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import Dataset


def seed_step(seed: int, step: int, share: int, device: torch.device) -> None:
    """Seed every generator that a recipe is likely to draw from, before `step` of a `share` of the data."""
    number = _number(seed, step, share)
    _seed(number)
    if device.type == "cuda":
        torch.cuda.manual_seed(number)


class Seeded(Dataset[Any]):
    """`dataset` for loader processes, seeded for each list of samples by the number in front of it (`numbered`).

    Without it a loader process draws on from list to list: a resumed run would have other numbers.
    """

    def __init__(self, dataset: Dataset[Any], seed: int, share: int) -> None:
        self._dataset, self._seed, self._share = dataset, seed, share

    def __getitems__(self, numbers: list[int]) -> list[Any]:
        """The samples of a list; its collation draws after them."""
        place, *indices = numbers
        _seed(_number(self._seed, place, self._share))
        together = getattr(self._dataset, "__getitems__", None)
        return list(together(indices)) if together else [self._dataset[index] for index in indices]

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]


def numbered(lists: Iterable[list[int]], first: int) -> Iterator[list[int]]:
    """Each list of samples with its number in front, counted from `first`."""
    for place, indices in enumerate(lists, first):
        yield [place, *indices]


def _number(seed: int, step: int, share: int) -> int:
    return int.from_bytes(hashlib.sha256(f"{seed} {step} {share}".encode()).digest()[:7])


def _seed(number: int) -> None:
    random.seed(number)
    torch.default_generator.manual_seed(number)  # torch.manual_seed asks every kind of device: 99 us instead of 2
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed(number % 2**32)
