"""Each mesh of four ranks is saved, and continued on each mesh of one to four ranks; beside DCP in the same runs.

    python -m benchmarks.mesh.resharding [--quick]

A run is stopped in the middle of an epoch of 203 samples, in batches of 29 that no mesh divides evenly, and continued
to the end of the epoch. Every tensor of the model and the optimizer is compared, byte by byte and on every rank, with
what the live tensors were at the stop, put together by torch. Then DCP loads its own checkpoint of the same state into
the same cut model, and Lightning Fabric and Accelerate theirs, where the model is cut in both. What each rank trained
on is counted over both runs.
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
RIVALS = {"fabric": "Fabric", "accelerate": "Accelerate"}
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
    return case("save", scratch / name, 4, name, *_OPTIONS, stop_after=STOP - 1, reference=reference, rivals=True)


def _load(scratch: Path, before: str, world: int, after: str) -> list[dict[str, Any]]:
    """Compare, and then continue in a training of its own."""
    facts = {"reference": str(scratch / f"{before}.pt"), "dcp": str(scratch / before / "dcp")}
    facts |= {rival: str(scratch / before / rival) for rival in RIVALS}
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
    of_cut = sum(pair["tensors"] for pair in cut)
    theirs_in_parts = []
    for rival, name in RIVALS.items():
        theirs_in_parts.append(f"{name} {sum(pair[rival] for pair in cut)} of {of_cut} ({len(cut)} pairs)")
        for words, count in Counter(pair[f"{rival}_error"] for pair in cut if pair[f"{rival}_error"]).items():
            say(f"{name} in {count} pairs: {words}")
    rows = [
        Row(
            f"a mesh saved, another one loaded ({len(pairs)} pairs): tensors the same to the last bit",
            f"{ours} of {tensors}",
            "; ".join([f"DCP {theirs} of {tensors}", *theirs_in_parts]),
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
    raised = [f"{name} in {sum(bool(pair[f'{rival}_error']) for pair in cut)}" for rival, name in RIVALS.items()]
    return result(
        rows,
        [
            f"DCP raised in {failed} pairs; of those in which both models are cut, {', '.join(raised)}",
            "without a GPU Accelerate leaves its FSDP2 plugin out: its state is set to what it has with one",
        ],
    )


if __name__ == "__main__":
    alone(measure, __doc__)
