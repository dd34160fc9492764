"""How the reader of NCCL's own log does on public logs (lab/nccl_logs.txt), by log and by fact.

python -m benchmarks.preflight_nccl            the logs that a seed drew for the score, and the misses by name
python -m benchmarks.preflight_nccl --look     those for looking at
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Sequence

from lab import nccl_logs
from lab.nccl_logs import FACTS, RIGHT, SEED, UNSURE, WRONG, Excerpt


def figures(excerpts: Sequence[Excerpt]) -> list[str]:
    """A Markdown table: whole logs first, then fact by fact, of the logs that have the fact."""
    lines = ["| | of | right | could not tell | wrong |", "|---|---|---|---|---|"]
    rows = [("whole logs", [each.mark for each in excerpts])]
    for fact in FACTS:
        marks = [each.marks()[fact] for each in excerpts if fact in each.marks()]
        rows.append((fact, marks))
    for what, marks in rows:
        count = Counter(marks)
        lines.append(f"| {what} | {len(marks)} | {count[RIGHT]} | {count[UNSURE]} | {count[WRONG]} |")
    return lines


def misses(excerpts: Sequence[Excerpt]) -> list[str]:
    """What was not right, by log."""
    lines = ["| log | fact | a person reads | the reader | |", "|---|---|---|---|---|"]
    for each in excerpts:
        said = nccl_logs.said(each.lines)
        for fact, mark in each.marks().items():
            if mark != RIGHT:
                lines.append(f"| {each.name} | {fact} | {each.truth.get(fact, '')} | {said[fact]} | {mark} |")
    return lines


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--look", action="store_true", help="the logs for looking at, instead of those for the score")
    look, score = nccl_logs.split()
    chosen = look if parser.parse_args().look else score
    print(f"seed {SEED}: {len(score)} of {len(look) + len(score)} logs are for the score\n")
    print("\n".join([*figures(chosen), "", *misses(chosen)]))


if __name__ == "__main__":
    main()
