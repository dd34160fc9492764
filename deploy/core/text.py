"""Format numbers for readers: short, aligned, with their unit. Pure.

A no-break space separates a number from its unit.
"""

from __future__ import annotations

import math
from datetime import UTC, datetime

GAP = "\u00a0"
MINUTE, HOUR, DAY = 60, 3600, 86400


def figure(value: float, digits: int = 3) -> str:
    """`digits` significant digits without an exponent where that stays short: 0.0812, 5,410, 1.2e-07."""
    if value == 0:
        return "0"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -5 or magnitude > 14:
        return f"{value:.{digits - 1}e}"
    return f"{value:,.{max(0, digits - 1 - magnitude)}f}"


def count(value: float) -> str:
    """A whole number with thousands apart: 1,797."""
    return f"{round(value):,}"


def several(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number:,}{GAP}{noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of 1 in percent with one decimal; never `100.0 %` for less than the whole."""
    value = share * 100
    if 99.9 < value < 100:
        value = 99.9
    return f"{value:.1f}{GAP}%"


def milliseconds(value: float) -> str:
    """`0.4 ms`, `12.3 ms`, `1,204 ms`."""
    return f"{value:,.0f}{GAP}ms" if value >= 1000 else f"{value:.1f}{GAP}ms"


def size(number: float) -> str:
    """Bytes in decimal units: `1.2 MB`."""
    for unit in ("B", "kB", "MB", "GB"):
        if number < 999.5:
            return f"{number:.0f}{GAP}{unit}" if unit == "B" else f"{number:.3g}{GAP}{unit}"
        number /= 1000
    return f"{number:,.2f}{GAP}TB"


def duration(seconds: float) -> str:
    """`21.4 s`, `3 min 05 s`, `2 h 14 min`, `3 d 04 h`."""
    if seconds < MINUTE:
        return f"{seconds:.1f}{GAP}s"
    whole = round(seconds)
    for big, small, big_unit, small_unit in (
        (DAY, HOUR, "d", "h"),
        (HOUR, MINUTE, "h", "min"),
        (MINUTE, 1, "min", "s"),
    ):
        if whole >= big:
            return f"{whole // big}{GAP}{big_unit} {whole % big // small:02d}{GAP}{small_unit}"
    return f"{whole}{GAP}s"


def clock(seconds: float) -> str:
    """Time since the start, for a column: `0:07.3`, `12:40.0`, `3:07:12`, `2 d 3:07:12`; `-0:01.2` before it."""
    sign, tenths = ("-" if seconds < -0.05 else ""), round(abs(seconds) * 10)
    whole = tenths // 10
    if whole < HOUR:
        return f"{sign}{whole // MINUTE}:{whole % MINUTE:02d}.{tenths % 10}"
    hours = f"{whole % DAY // HOUR}:{whole % HOUR // MINUTE:02d}:{whole % MINUTE:02d}"
    return f"{sign}{whole // DAY}{GAP}d {hours}" if whole >= DAY else f"{sign}{hours}"


def date(seconds: float) -> str:
    """Unix seconds as a date and time of day in UTC; the bare number where no calendar has it."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return figure(seconds)


def ranks(numbers: list[int]) -> str:
    """`rank 3`, `ranks 0–2, 5`: neighbours are drawn together."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    listed = ", ".join(str(low) if low == high else f"{low}–{high}" for low, high in spans)
    return f"{'rank' if len(set(numbers)) == 1 else 'ranks'} {listed}"


def last_line(said: bytes) -> str:
    """The last line of what a command complained of; Docker's hint where to read on comes after it, and is left out."""
    lines = said.decode(errors="replace").strip().splitlines()
    return next(
        (line for line in reversed(lines) if line.strip() and "docker run --help" not in line), "it said nothing"
    )
