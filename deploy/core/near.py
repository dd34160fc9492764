"""The name that a user may have meant. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(typed: str, names: Iterable[str]) -> str:
    """The name most like what was typed; empty if none is."""
    return next(iter(difflib.get_close_matches(typed, sorted(names), 1, 0.7)), "")
