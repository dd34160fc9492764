"""What the variables of a node say as numbers (docs/develop/contract.md). Standard library only."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping


def number(given: Mapping[str, str], name: str, otherwise: int) -> int:
    """A variable as a number; what is none is taken for one that is not there."""
    text = given.get(name, "")
    return int(text) if re.fullmatch(r"[0-9]{1,18}", text) else otherwise


def place(given: Mapping[str, str] = os.environ) -> int:
    """The place of this node among all."""
    return number(given, "PET_NODE_RANK", 0)


def ranks(given: Mapping[str, str] = os.environ) -> int:
    """How many ranks this node has, where that is said as a number."""
    return number(given, "PET_NPROC_PER_NODE", 1)


def first_rank(given: Mapping[str, str] = os.environ) -> int:
    """The first rank of this node, where each node has as many."""
    return place(given) * ranks(given)
