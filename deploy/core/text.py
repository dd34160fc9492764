"""Format numbers, sizes and times for people: short, aligned, with their unit. Pure.

Messages, the console and the tables use these functions; report/page/ builds on them.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime

MINUTE, HOUR, DAY = 60, 3600, 86400


def figure(value: float) -> str:
    """Three significant digits, without an exponent if that stays short: 0.0812, 5,410, 1.2e-07, inf."""
    if not (value and math.isfinite(value)):
        return f"{value or 0:g}"
    magnitude = math.floor(math.log10(abs(value)))
    if magnitude < -5 or magnitude > 14:
        return f"{value:.2e}"
    return f"{value:,.{max(0, 2 - magnitude)}f}"


def count(value: float) -> str:
    """A whole number with commas: 1,797."""
    return f"{round(value):,}"


def several(number: int, noun: str) -> str:
    """`1 node`, `3 nodes`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def percent(share: float) -> str:
    """A share of 1 in percent with one decimal; never `100.0 %` for less than all of it."""
    value = share * 100
    if 99.9 < value < 100:
        value = 99.9
    return f"{value:.1f} %"


def milliseconds(value: float) -> str:
    """`0.4 ms`, `12.3 ms`, `1,204 ms`."""
    return f"{value:,.0f} ms" if value >= 1000 else f"{value:.1f} ms"


def amount(number: float) -> str:
    """Bytes in decimal units: `340 kB`, `1.2 MB`, `312 MB`, `1.2 GB`."""
    for unit, scale in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6)):
        if number >= scale:
            value = number / scale
            return f"{value:.0f} {unit}" if unit == "MB" and value >= 10 else f"{value:,.1f} {unit}"
    return f"{number / 1e3:.0f} kB" if number >= 1e3 else f"{number:.0f} B"


def binary(number: float) -> str:
    """Bytes in the units of `free -h`, `df -h` and `ulimit`: `64 KiB`, `64 MiB`, `1.5 GiB`."""
    if number >= 1 << 30:
        return gpu_memory(number / (1 << 20))
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number >= scale:
            return f"{number / scale:.0f} {unit}"
    return f"{number:.0f} B"


def gpu_memory(mib: float) -> str:
    """A GPU's memory, from MiB as nvidia-smi prints it: `79.6 GiB`."""
    return f"{mib / 1024:,.1f} GiB"


def gpu_share(used_mib: float, total_mib: float) -> str:
    """How much GPU memory is in use: `61 of 80 GiB`."""
    return f"{used_mib / 1024:.0f} of {total_mib / 1024:.0f} GiB"


def pace(sent: int, total: int, seconds: float) -> str:
    """The progress of a transfer: `312 MB of 450 MB, 24 MB/s, 6 s left`."""
    progress = f"{amount(sent)} of {amount(total)}"
    if not sent or seconds <= 0:
        return progress
    rate = sent / seconds
    left = (total - sent) / rate
    end = f"{in_seconds(round(left))} left" if sent < total else f"in {duration(seconds)}"
    return f"{progress}, {amount(rate)}/s, {end}"


def in_seconds(value: float, decimals: int | None = None) -> str:
    """A wait or a limit: `45 s`; below ten seconds with one decimal unless it is zero: `2.5 s`, `3 s`."""
    if decimals is None:
        decimals = int(value < 10 and round(value, 1) % 1 > 0)
    return f"{value:.{decimals}f} s"


def duration(seconds: float) -> str:
    """`21.4 s`, `3 min 05 s`, `2 h 14 min`, `3 d 04 h`."""
    if seconds < MINUTE:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    for big, small, big_unit, small_unit in (
        (DAY, HOUR, "d", "h"),
        (HOUR, MINUTE, "h", "min"),
        (MINUTE, 1, "min", "s"),
    ):
        if whole >= big:
            return f"{whole // big} {big_unit} {whole % big // small:02d} {small_unit}"
    return f"{whole} s"


def clock(seconds: float, tenths: bool = False) -> str:
    """A running time: `0:07`, `12:30`, `3:07:12`, `2 d 3:07:12`; with `tenths`, below an hour: `0:07.3`, `-0:01.2`."""
    if not tenths:
        seconds = max(0.0, round(seconds))
    sign, parts = ("-" if seconds < -0.05 else ""), round(abs(seconds) * 10)
    whole = parts // 10
    if whole < HOUR:
        return f"{sign}{whole // MINUTE}:{whole % MINUTE:02d}" + (f".{parts % 10}" if tenths else "")
    hours = f"{whole % DAY // HOUR}:{whole % HOUR // MINUTE:02d}:{whole % MINUTE:02d}"
    return f"{sign}{whole // DAY} d {hours}" if whole >= DAY else f"{sign}{hours}"


def date(seconds: float) -> str:
    """Unix seconds as a date and time in UTC; the bare number if they are outside the calendar's range."""
    try:
        return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")
    except (ValueError, OverflowError, OSError):
        return figure(seconds)


def ranks_in_words(numbers: Iterable[int]) -> str:
    """`rank 3`, or `ranks 0-2, 5`: consecutive ranks become a range, and at most eight ranges are shown."""
    spans: list[list[int]] = []
    for number in sorted(set(numbers)):
        if spans and number == spans[-1][-1] + 1:
            spans[-1].append(number)
        else:
            spans.append([number])
    shown = ", ".join(str(span[0]) if len(span) == 1 else f"{span[0]}-{span[-1]}" for span in spans[:8])
    noun = "rank" if [len(span) for span in spans] == [1] else "ranks"
    return f"{noun} {shown}{', ...' if len(spans) > 8 else ''}"


def step_words(step: int, repeats: bool, steps: int | None = None) -> str:
    """`step 7`, `step 7/600`; with a remark if repeated steps are counted twice."""
    return f"step {step}" + f"/{steps}" * bool(steps) + " (including repeated steps)" * repeats


def parents(path: str) -> Iterator[str]:
    """The folders above a relative path, the nearest first."""
    while path := path.rpartition("/")[0]:
        yield path


def shortened(text: str, most: int) -> str:
    """The text; if it is longer than `most`, its first `most` characters and `…`."""
    return text if len(text) <= most else f"{text[:most]}…"


def listed(names: Iterable[str], most: int = 4) -> str:
    """`a, b and c`; of more than `most` names, the last ones are only counted."""
    every = list(names)
    if len(every) > most:
        return f"{', '.join(every[: most - 1])} and {len(every) - most + 1} more"
    return " and ".join(filter(None, [", ".join(every[:-1]), *every[-1:]]))


def subject(names: Sequence[str], singular: str, plural: str, most: int = 4) -> str:
    """Names with the form of the verb that agrees with them: `a drops`, `a and b drop`."""
    return f"{listed(names, most)} {singular if len(names) == 1 else plural}"


def last_line(words: str, instead: str = "no message") -> str:
    """The last line of what a command printed, without the hint that Docker adds; `instead` if it printed nothing.

    A stack trace or another program's output may follow an error from Docker: the line that begins with `docker: ` says
    more then, and is returned.
    """
    lines = words.strip().splitlines()
    if docker := next((line for line in reversed(lines) if line.startswith("docker: ")), ""):
        return docker
    return next((line for line in reversed(lines) if line.strip() and "docker run --help" not in line), instead)
