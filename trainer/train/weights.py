"""A digest of a rank's weights: all replicas must have the same digest, and a single flipped bit changes it."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

from muster import exchange

_WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


class Audit:
    """Compares the replicas' weights at each checkpoint. Every rank's object gets the same answers."""

    def __init__(self) -> None:
        self._alike = False
        self._odd: set[int] = set()

    def spoiled(self, step: int, mine: str) -> bool:
        """Whether the ranks must go back: their digests differ, but did not at the previous checkpoint.

        If they differ at the same step a second time, it is not chance (processors may round differently): False.
        """
        digests = exchange.all_of(mine)
        alike, before, again = len(set(digests)) == 1, self._alike, step in self._odd
        if not alike:
            self._odd.add(step)
        self._alike = alike or (before and not again)
        return before and not alike and not again


def digest(parameters: Iterable[Tensor]) -> str:
    """The weights as eight hex digits. This reads each weight once, and waits for the device once."""
    sums = [_sum(parameter.detach()) for parameter in parameters]
    return f"{zlib.crc32(repr(torch.stack(sums).tolist()).encode() if sums else b''):08x}"


def _sum(values: Tensor) -> Tensor:
    real = torch.view_as_real(values) if values.is_complex() else values
    return real.view(_WHOLE_NUMBERS[real.element_size()]).sum(dtype=torch.int64)
