"""`fab explain` on the output of the laboratory's failed runs: named first, named among a few, not known, wrong."""

from __future__ import annotations

from deploy.explain.cause import explain
from lab import fault, recordings


def score():
    """Counts over all recordings, and the names of those that are wrong or not known."""
    known, found = fault.catalogue(), {"first": 0, "among": 0, "unknown": [], "wrong": []}
    for case, texts in recordings.load().items():
        one = known.get(recordings.of_fault(case))
        if one is None:
            continue
        said = explain(texts)
        causes = {one.cause, *one.also}
        if said.cause in causes:
            found["first"] += 1
        elif causes & set(said.maybe):
            found["among"] += 1
        else:
            found["wrong" if said.cause else "unknown"].append(case)
    return found


def rows(found):
    """Lines of the table of figures: (what, measured, reach, met)."""
    every = found["first"] + found["among"] + len(found["unknown"]) + len(found["wrong"])
    right = found["first"] + found["among"]
    shown = (
        f"{right} of {every} ({100 * right / every:.1f} %): {found['first']} alone or first, {found['among']} among "
    )
    shown += f"at most 5 that the same words have; {len(found['unknown'])} not known, {len(found['wrong'])} wrong"
    return [
        ("`fab explain` on failed runs, right cause", shown, "≥ 80 % of ≥ 25", every >= 25 and right >= 0.8 * every)
    ]
