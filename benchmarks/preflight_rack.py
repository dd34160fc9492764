"""Preflight under faults of SSH, Docker and images: real sshd and engines of a rack, the real `fab preflight`.

python -m benchmarks.preflight_rack                 all of tests/cluster/broken.py, on 2 and on 3 hosts
python -m benchmarks.preflight_rack --only NAME...  some of them, one line a trial
python -m benchmarks.preflight_rack --rack NAME     on a rack of three that is up and has the image
"""

from __future__ import annotations

import argparse
import tempfile
import time

from tests.cluster import broken
from tests.cluster.conftest import Rack

COUNTS = (2, 3)


def trial(kind, rack, count):
    """One fault on so many hosts, as a dict of what was right to say and what was said."""
    with tempfile.TemporaryDirectory() as folder:
        ground = broken.Ground(rack, rack.hosts[:count], folder)
        began = time.monotonic()
        _, verdict, hosts = broken.tried(kind, ground)
        seconds = round(time.monotonic() - began, 1)
    right = broken.is_right(kind, verdict)
    return {
        "name": kind.words, "count": count, "expected": kind.cause, "where": ", ".join(hosts) if kind.cause else "",
        "said": verdict["cause"], "said_where": ", ".join(verdict["hosts"]), "right": right,
        "right_where": right and broken.names_where(kind, verdict, hosts), "seconds": seconds,
        "first": next((found["text"] for found in verdict["findings"]), ""),
    }  # fmt: skip


def measure(rack, only=()):
    """All trials, one after the other: they share the hosts."""
    found = []
    for kind in broken.TROUBLES.values():
        for count in COUNTS if not only or kind.name in only else ():
            one = trial(kind, rack, count)
            mark = "right" if one["right_where"] else "where" if one["right"] else "WRONG"
            print(f"{mark} {kind.name:40} {count} wanted {kind.cause or 'nothing'} {one['where']}; said "
                  f"{one['said'] or 'nothing'} {one['said_where']} in {one['seconds']} s: {one['first']}",
                  flush=True)  # fmt: skip
            found.append(one)
    return found


def main():
    """Measure, and print."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--only", nargs="*", default=[])
    asked.add_argument("--rack", default="rack")
    options = asked.parse_args()
    measure(Rack(options.rack, 3), options.only)


if __name__ == "__main__":
    main()
