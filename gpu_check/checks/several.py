"""Several GPUs in one host, one rank on each: NCCL connects them, and how fast they sum."""

from __future__ import annotations

from collections.abc import Iterator

from ..bench import Bench
from ..finding import Finding, judge, untried
from ..nodes import Run

TITLE, LIMIT_S = "several GPUs", 70
_END_S = 60.0


def run(bench: Bench) -> Iterator[Finding]:
    """One rank for each GPU; without GPUs, two ranks on the CPU. With a single GPU there is nothing to try."""
    if bench.gpus == 1:
        yield untried("NCCL between GPUs", "there is one GPU")
        return
    ranks = bench.gpus or 2
    with Run(bench.folder / "several", bench.script("rate", bench.backend), ranks=ranks) as run:
        run.finish(_END_S)
        seen = run.records_of_ranks()
    good = len(seen) == ranks and all(rank["right"] for rank in seen)
    backends = sorted({rank["backend"] for rank in seen})
    yield judge(f"{ranks} ranks: all_reduce", good and backends == [bench.backend], ", ".join(backends), bench.backend)
    slowest = min(rank["bus_gb_s"] for rank in seen)
    mb = seen[0]["bytes"] / 1e6
    yield judge(f"{ranks} ranks: bus rate", slowest > 0, f"{slowest:.2f} GB/s with {mb:.0f} MB", "", ranks=seen)
