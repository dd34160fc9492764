"""Ranks in words. Pure."""

from __future__ import annotations

from collections.abc import Iterable


def ranks_in_words(numbers: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2, 5`."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    shown = ", ".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs[:8])
    several = len(runs) > 1 or len(runs[0]) > 1 if runs else True
    return f"rank{'s' if several else ''} {shown}{', ...' if len(runs) > 8 else ''}"
