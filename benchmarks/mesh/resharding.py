"""Each mesh of four ranks is saved, and continued on each mesh of one to four ranks; beside DCP in the same runs.

    python -m benchmarks.mesh.resharding [--quick]

A run is stopped in the middle of an epoch of 203 samples, in batches of 29 that no mesh divides evenly, and continued
to the end of the epoch. Every tensor of the model and the optimizer is compared, byte by byte and on every rank, with
what the live tensors were at the stop, put together by torch. Then DCP loads its own checkpoint of the same state into
the same cut model, and Lightning Fabric its own, where the model is cut in both. What each rank trained on is counted
over both runs.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.mesh.runs import MESHES, case, peers, run

SAMPLES, BATCH, STOP, STEPS = 203, 29, 3, 7
_OPTIONS = ("--batch", BATCH, "--steps", STEPS)


def measure(quick: bool) -> dict[str, Any]:
    """Tensors that are the same to the last bit, samples repeated and missed, over all pairs of meshes."""
    saved = ["FSDP2", "TP"] if quick else list(MESHES[4])
    loaded = [(world, name) for world in (MESHES if not quick else (1, 3)) for name in MESHES[world]]
    with nodes.scratch() as scratch:
        run(4, [_save(scratch, name) for name in saved])
        for world in sorted({world for world, _ in loaded}):
            names = [name for other, name in loaded if other == world]
            run(world, [one for after in names for before in saved for one in _load(scratch, before, world, after)])
            say(f"{len(saved)} meshes continued on {len(names)} of {world} ranks")
        pairs = [_look(scratch, before, world, after) for before in saved for world, after in loaded]
    return _result(pairs)


def _save(scratch: Path, name: str) -> dict[str, Any]:
    reference = str(scratch / f"{name}.pt")
    return case("save", scratch / name, 4, name, *_OPTIONS, stop_after=STOP - 1, reference=reference, fabric=True)


def _load(scratch: Path, before: str, world: int, after: str) -> list[dict[str, Any]]:
    """Compare, and then continue in a training of its own."""
    facts = {"reference": str(scratch / f"{before}.pt"), "dcp": str(scratch / before / "dcp")}
    facts["fabric"] = str(scratch / before / "fabric")
    step = scratch / before / "checkpoints" / f"step-{STOP:08d}"
    there = (scratch / f"{before}-{world}-{after}", world, after, *_OPTIONS, "--resume", step)
    return [case("load", *there, **facts), case("train", *there)]


def _look(scratch: Path, before: str, world: int, after: str) -> dict[str, Any]:
    folder = scratch / f"{before}-{world}-{after}"
    facts: dict[str, Any] = json.loads((folder / "compared.json").read_text())
    seen = _seen(scratch / before, 4, before, STOP) + _seen(folder, world, after, STEPS - STOP)
    facts["repeated"] = sum(count - 1 for count in seen.values())
    facts["missed"] = SAMPLES - len(seen)
    facts["pair"] = f"{before} on 4 -> {after} on {world}"
    return facts


def _seen(folder: Path, world: int, name: str, steps: int) -> Counter[int]:
    """How often each sample was trained on; the ranks of a tensor parallel group have to read the same."""
    taken: Counter[int] = Counter()
    same = peers(world, name)
    rows = [(folder / f"seen-{rank}").read_text().splitlines()[-steps:] for rank in range(world)]
    for rank in range(world):
        if rows[rank] != rows[rank - rank % same]:
            raise RuntimeError(f"{folder.name}: rank {rank} has read other samples than its peers")
        if rank % same == 0:
            taken.update(int(number) for row in rows[rank] for number in row.split())
    return taken


def _result(pairs: list[dict[str, Any]]) -> dict[str, Any]:
    tensors = sum(pair["tensors"] for pair in pairs)
    ours, theirs = (sum(pair[key] for pair in pairs) for key in ("ours", "dcp"))
    repeated, missed = (sum(pair[key] for pair in pairs) for key in ("repeated", "missed"))
    for pair in pairs:
        if pair["ours"] < pair["tensors"] or pair["dcp"] < pair["tensors"] or pair["repeated"] or pair["missed"]:
            say(f"NOT the same: {pair}")
    failed = sum(bool(pair["dcp_error"]) for pair in pairs)
    cut = [pair for pair in pairs if "fabric" in pair]
    fabric, of_cut = (sum(pair[key] for pair in cut) for key in ("fabric", "tensors"))
    for words, count in Counter(pair["fabric_error"] for pair in cut if pair["fabric_error"]).items():
        say(f"Fabric in {count} pairs: {words}")
    rows = [
        Row(
            f"a mesh saved, another one loaded ({len(pairs)} pairs): tensors the same to the last bit",
            f"{ours} of {tensors}",
            f"DCP {theirs} of {tensors}; Fabric {fabric} of {of_cut} ({len(cut)} pairs)",
            "",
            "all",
            ours == tensors,
        ),
        Row(
            "... samples repeated / missed",
            f"{repeated} / {missed}",
            "DCP has no position in the data",
            "",
            "0 / 0",
            (repeated, missed) == (0, 0),
        ),
    ]
    raised = sum(bool(pair["fabric_error"]) for pair in cut)
    return result(rows, [f"DCP raised in {failed} pairs, Fabric in {raised} of those in which both models are cut"])


if __name__ == "__main__":
    alone(measure, __doc__)
