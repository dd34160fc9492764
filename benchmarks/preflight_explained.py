"""`fab explain` on the output of the laboratory's failed runs: named first, named among a few, not known, wrong."""

from __future__ import annotations

from deploy.explain.cause import explain
from lab import fault, recordings


def score():
    """Counts over all recordings, and the names of those that are wrong or not known."""
    known, counts = fault.catalogue(), {"first": 0, "among": 0, "unknown": [], "wrong": []}
    for case, texts in recordings.load().items():
        broken = known.get(recordings.of_fault(case))
        if broken is None:
            continue
        explained = explain(texts)
        causes = {broken.cause, *broken.also}
        if explained.cause in causes:
            counts["first"] += 1
        elif causes & set(explained.maybe):
            counts["among"] += 1
        else:
            counts["wrong" if explained.cause else "unknown"].append(case)
    return counts


def rows(counts):
    """Lines of the table of figures: (what, measured, reach, met)."""
    every = counts["first"] + counts["among"] + len(counts["unknown"]) + len(counts["wrong"])
    right = counts["first"] + counts["among"]
    shown = (
        f"{right} of {every} ({100 * right / every:.1f} %): {counts['first']} alone or first, {counts['among']} among "
    )
    shown += f"at most 5 that the same words have; {len(counts['unknown'])} not known, {len(counts['wrong'])} wrong"
    return [
        ("`fab explain` on failed runs, right cause", shown, "≥ 80 % of ≥ 25", every >= 25 and right >= 0.8 * every)
    ]
