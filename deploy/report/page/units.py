"""Numbers for the page: those of core/text.py, with a no-break space before every unit. Pure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ParamSpec

from ...core import text
from ...core.text import count, date, figure, ranks_in_words

__all__ = [
    "GAP",
    "clock",
    "count",
    "date",
    "duration",
    "figure",
    "kinds",
    "milliseconds",
    "percent",
    "ranks_in_words",
    "several",
    "size",
]

GAP = "\u00a0"
P = ParamSpec("P")


def kinds(names: Sequence[str]) -> str:
    """Names, each once with how often it is there: `8 × A100, 2 × T4`."""
    return ", ".join(f"{names.count(name)} × {name}" for name in dict.fromkeys(names) if name)


def _tight(write: Callable[P, str]) -> Callable[P, str]:
    def tight(*values: P.args, **more: P.kwargs) -> str:
        return write(*values, **more).replace(" ", GAP)

    return tight


clock, duration, milliseconds = _tight(text.clock), _tight(text.duration), _tight(text.milliseconds)
percent, several, size = _tight(text.percent), _tight(text.several), _tight(text.amount)
