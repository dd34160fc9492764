"""The long tests take turns: `make test` runs a tenth of each file of them a day, so each runs within ten days.

All of them keep two cores busy for hours, and a day's share shall be over in 25 minutes with all the others. A test
that holds a line of docs/security.md runs every day. `make test DRAW=all` runs all, and so does pytest without
`--draw`.
"""

from __future__ import annotations

import datetime
import zlib
from collections import Counter

SHARES = 10
LONG = ("tests/cluster/", "tests/dist/", "tests/image/", "tests/slurm/")


def add_option(parser):
    """`make test` gives the day, in UTC."""
    parser.addoption(
        "--draw", metavar="DAY", default="all", type=_day, help="of the long tests, the share of a day: 2026-11-24"
    )


def _day(word):
    """A day, or all. pytest refuses another word by the ValueError."""
    return word if word == "all" else datetime.date.fromisoformat(word).isoformat()


def left_out(items, day):
    """The tests that have their turn on another day: in each file, nine of ten that may take turns."""
    if day == "all":
        return []
    turn, places, others = datetime.date.fromisoformat(day).toordinal(), Counter(), []
    for item in items:
        file = item.nodeid.partition("::")[0]
        if not file.startswith(LONG) or item.get_closest_marker("holds"):
            continue
        places[file] += 1
        # Files begin on different days: many have one test.
        if (places[file] + zlib.crc32(file.encode()) - turn) % SHARES:
            others.append(item)
    return others


def lines(day, counts):
    """What was left out, in lines; `counts` by file."""
    if not counts:
        return []
    total = sum(counts.values())
    rows = [f"{file}: {count}" for file, count in sorted(counts.items())]
    return [
        f"{total} long tests have their turn within ten days of {day}; all: make test DRAW=all",
        *rows,
    ]
