"""A real run is broken on purpose: do the first words name who failed first, and why?

    make rack RACK=breaks NODES=3
    python -m benchmarks.breaks [--rack breaks] [--of stalls] [--only "kill -9"] [--seed 1] [--kind script|trainer]

The runs are a plain DDP script that knows nothing of Muster, and Muster's own trainer, on three nodes: processes on
this machine for the faults of one rank, three rack hosts (--rack) for all faults. --seed selects the culprit. The
first line about the fault counts: right, silent (nothing in time), unsure ("could not tell"), or WRONG.

--image: the image that the hosts run (muster-trainer:cpu).
--boxes: hosts without an engine, given as the line that `python -m tests.cluster.boxes` prints.
--mended: with one restart, a rank that hangs is ended, and all train again; a harmless fault ends no rank.
`python -m benchmarks.breaks.story` compares all places that report on a run and its end.
"""

from __future__ import annotations

import argparse
import importlib
import random
from collections import Counter

from benchmarks.breaks import FAULTS
from benchmarks.breaks.boxes import boxes
from benchmarks.breaks.trial import HOSTS, Rack, Trial, attempt

FILES = ("ends", "raises", "stalls", "collectives", "slow", "harmless", "together", "hosts")


def main() -> None:
    """Break runs, one after the other, and print a row for each."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--rack", default="")
    asked.add_argument("--image", default="muster-trainer:cpu")
    asked.add_argument("--boxes", default="")
    asked.add_argument("--seed", type=int, default=1)
    asked.add_argument("--of", choices=FILES, action="append")
    asked.add_argument("--kind", choices=("script", "trainer"), action="append")
    asked.add_argument("--only", action="append", default=[])
    asked.add_argument("--mended", action="store_true")
    given = asked.parse_args()
    names: dict[str, list[str]] = {}
    for file in FILES:
        before = set(FAULTS)
        importlib.import_module(f"benchmarks.breaks.{file}")
        names[file] = [name for name in FAULTS if name not in before]
    rack = boxes(given.boxes) if given.boxes else Rack(given.rack, len(HOSTS), given.image)
    draw = random.Random(given.seed)
    counts: Counter[str] = Counter()
    print("| kind | fault | culprit | | said first | after |\n|---|---|---|---|---|---|", flush=True)
    for kind in given.kind or ("script", "trainer"):
        for name in (name for file in given.of or FILES for name in names[file]):
            fault = FAULTS[name]
            if (
                kind not in fault.kinds
                or (given.only and name not in given.only)
                or (fault.needs_hosts and not rack.name)
            ):
                continue
            trial = Trial(rack, fault, kind, draw.randrange(3), given.mended)
            told = attempt(trial)
            if told.verdict == "NOT STARTED":  # no verdict on the fault: try once more
                told = attempt(trial.again())
            counts[told.verdict] += 1
            shown, end = (text.replace("|", "/")[:260] for text in (told.words or "(nothing)", told.end))
            row = f"| {kind} | {name} | {trial.culprit} | {told.verdict} | {shown} | {told.after_s:.1f} s |"
            print(row + f" {end} |" * bool(end), flush=True)
    print(f"\n{counts['right']} of {counts.total()} right: {dict(counts)}")


if __name__ == "__main__":
    main()
