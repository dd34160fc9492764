"""A digest of a rank's weights: replicas must have the same, bit for bit, and one flipped bit shows."""

from __future__ import annotations

import zlib
from collections.abc import Iterable

import torch
from torch import Tensor

_WHOLE_NUMBERS = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def digest(parameters: Iterable[Tensor]) -> str:
    """The weights in eight letters. It reads each weight once, and waits for the device once."""
    sums = [_sum(parameter.detach()) for parameter in parameters]
    return f"{zlib.crc32(repr(torch.stack(sums).tolist()).encode() if sums else b''):08x}"


def _sum(values: Tensor) -> Tensor:
    real = torch.view_as_real(values) if values.is_complex() else values
    return real.view(_WHOLE_NUMBERS[real.element_size()]).sum(dtype=torch.int64)
