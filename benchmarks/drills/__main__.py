"""`python -m benchmarks.drills DRILL`: see benchmarks/drills/__init__.py."""

import sys

from benchmarks import drills
from benchmarks.figure import alone

if __name__ == "__main__":
    if len(sys.argv) < 2 or sys.argv[1] not in drills.DRILLS:
        sys.exit(drills.__doc__)
    alone(drills.measure(sys.argv.pop(1)), drills.__doc__)
