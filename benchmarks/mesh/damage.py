"""Damaged parts of a checkpoint that four ranks have cut: how often is it noticed, and its host named?

    python -m benchmarks.mesh.damage [--quick]

Each rank is a host with a disk of its own. Of the cases, 40 % flip a random bit, 40 % cut a file at a random place, and
20 % remove it: a part, or in one case of ten the manifest (of DCP: its index), of a random host. All ranks then look
for the newest usable checkpoint, as a resume does. DCP gets the same damage at the same relative place, in a folder
that all ranks share, and one process loads every tensor of it.
"""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path
from typing import Any

import torch

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.mesh import dcp_rival
from benchmarks.mesh.runs import case, run
from muster import exchange
from muster.checkpoint.search import newest_of_all_ranks
from muster.errors import CheckpointError

WORLD = 4


def measure(quick: bool) -> dict[str, Any]:
    """Cases noticed, with the right host named, and the step before used; beside what DCP raises."""
    count = 20 if quick else 100
    with nodes.scratch() as scratch:
        mesh = (scratch / "good-RANK", WORLD, "FSDP2", "--steps", 6, "--checkpoint-every", 3, "--keep", 9)
        save = case("save", *mesh, reference=str(scratch / "reference.pt"))
        hurt = {"do": "damage", "good": str(scratch / "good-RANK"), "folder": str(scratch / "hurt"), "cases": count}
        run(WORLD, [save])
        _gather_dcp(scratch)
        run(WORLD, [{**hurt, "dcp": str(scratch / "dcp")}])
        cases = [json.loads(line) for line in (scratch / "hurt-cases").read_text().splitlines()]
    noticed, named, before = (sum(facts[key] for facts in cases) for key in ("noticed", "named", "before"))
    raised, wrong = (sum(facts[key] for facts in cases) for key in ("dcp_raised", "dcp_wrong"))
    for missed in (facts for facts in cases if not (facts["noticed"] and facts["named"] and facts["before"])):
        say(f"NOT noticed, named and passed over: {missed}")
    everything = f"{count} of {count}"
    rows = [
        Row(
            "damaged parts noticed before anything is loaded",
            f"{noticed} of {count}",
            f"DCP {raised} of {count}",
            "",
            everything,
            noticed == count,
        ),
        Row(
            "... and the host of the damage named",
            f"{named} of {count}",
            "DCP names none",
            "",
            everything,
            named == count,
        ),
        Row("... and the step before used", f"{before} of {count}", "", "", everything, before == count),
        Row("wrong tensors loaded without an error", "0", f"DCP {wrong} of {count}", "", "0", noticed == count),
    ]
    return result(rows, ["two in five a flipped bit, two in five a truncation, one in five a file that is missing"])


def _gather_dcp(scratch: Path) -> None:
    """Bring the files that DCP has written on four disks into one folder: it loads from no other."""
    for rank in range(WORLD):
        shutil.copytree(scratch / f"good-{rank}" / "dcp", scratch / "dcp", dirs_exist_ok=True)


def of_rank(orders: dict[str, Any], rank: int) -> None:
    """Spoil a copy of each rank's checkpoints in each case, and search it; rank 0 writes what came of it."""
    draw, good, place = random.Random(0), Path(orders["good"].replace("RANK", str(rank))), Path(orders["folder"])
    like = dcp_rival.whole(Path(orders["dcp"])) if rank == 0 else {}
    intact = dcp_rival.load_alone(like, Path(orders["dcp"])) if rank == 0 else None
    newest = sorted((good / "checkpoints").iterdir())[-1].name
    for _ in range(orders["cases"]):
        kind, host, where, bit = draw.choice("ffttm"), draw.randrange(WORLD), draw.random(), draw.randrange(8)
        index = draw.random() < 0.1
        own = place.with_name(f"hurt-{rank}")
        shutil.copytree(good / "checkpoints", own)
        if rank == host:
            _spoil(own / newest / ("manifest.json" if index else f"shard-{host}.pt"), kind, where, bit)
        exchange.gather(0)
        try:
            search = newest_of_all_ranks(own, looks=True)
            words = " ".join(damaged.reason for damaged in search.damaged)
            before = search.path is not None and search.path.endswith("step-00000003")
        except CheckpointError as error:
            words, before = error.message, False
        shutil.rmtree(own)
        exchange.gather(0)
        if rank:
            continue
        named = [other for other in range(WORLD) if f"host-{other}" in words] == [host]
        facts = {"kind": kind, "index": index, "host": host, "noticed": bool(words), "named": named, "before": before}
        facts |= {"words": words, **_dcp(orders, like, intact or {}, kind, host, where, bit, index)}
        with place.with_name("hurt-cases").open("a") as file:
            file.write(json.dumps(facts) + "\n")


def _spoil(path: Path, kind: str, where: float, bit: int) -> None:
    if kind == "m":
        path.unlink()
        return
    content = bytearray(path.read_bytes())
    at = int(where * len(content))
    if kind == "f":
        content[at] ^= 1 << bit
    else:
        del content[at:]
    path.write_bytes(content)


def _dcp(
    orders: dict[str, Any],
    like: dict[str, torch.Tensor],
    intact: dict[str, torch.Tensor],
    kind: str,
    host: int,
    where: float,
    bit: int,
    index: bool,
) -> dict[str, bool]:
    folder = Path(orders["folder"]).with_name("hurt-dcp")
    shutil.copytree(orders["dcp"], folder)
    _spoil(folder / (".metadata" if index else f"__{host}_0.distcp"), kind, where, bit)
    loaded = dcp_rival.load_alone(like, folder)
    shutil.rmtree(folder)
    same = loaded is not None and all(torch.equal(loaded[name], value) for name, value in intact.items())
    return {"dcp_raised": loaded is None, "dcp_wrong": loaded is not None and not same}


if __name__ == "__main__":
    alone(measure, __doc__)
