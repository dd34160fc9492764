"""Damage to the newest checkpoint, a flipped bit or a truncation: how often is it noticed?

    python -m benchmarks.corruption [--quick]

Half of the cases flip one random bit, half cut the file at a random position. The damaged file is the largest with a
probability of nine in ten, else one of the others. The rivals get the same damage at the same relative position.
"""

from __future__ import annotations

import logging
import random
import shutil
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import CheckpointException

from benchmarks import nodes
from benchmarks.figure import Row, alone, result
from muster.checkpoint import store
from trainer.recipes import digits

Spoil = Callable[[Path], None]


def measure(quick: bool) -> dict[str, Any]:
    """How many damaged checkpoints each side noticed, and how often Muster used the previous checkpoint instead."""
    cases = 20 if quick else 100
    warnings.simplefilter("ignore")  # DCP warns at every load that there is only one process
    logging.disable(logging.ERROR)  # ... and logs a traceback of what it raises anyway
    draw = random.Random(0)
    state = _state()
    noticed = {"Muster": 0, "torch.load": 0, "DCP": 0}
    fell_back = 0
    with nodes.scratch() as scratch:
        good = [store.write(scratch / "good", step, state, metric=None, summary={}) for step in (1, 2)]
        torch.save(state, scratch / "plain.pt")
        dcp.save(state, checkpoint_id=scratch / "dcp", no_dist=True)
        for case in range(cases):
            spoil = _damage(draw, flip=case % 2 == 0)
            usable, damaged = _ours(good, scratch / "ours", spoil)
            noticed["Muster"] += bool(damaged)
            fell_back += usable == "step-00000001"
            noticed["torch.load"] += _raises(lambda: _plain(scratch, spoil))  # noqa: B023
            noticed["DCP"] += _raises(lambda: _dcp(scratch, state, spoil))  # noqa: B023
    rows = [
        Row(
            f"damaged checkpoints noticed, against {name}",
            f"{noticed['Muster']} of {cases}",
            f"{noticed[name]} of {cases}",
            "",
            f"{cases} of {cases}",
            noticed["Muster"] == cases,
        )
        for name in ("torch.load", "DCP")
    ]
    fallen = Row(
        "... and the one before it used", f"{fell_back} of {cases}", "", "", f"{cases} of {cases}", fell_back == cases
    )
    return result([*rows, fallen], ["half of the cases one flipped bit, half a truncation"])


def _state() -> dict[str, Any]:
    torch.manual_seed(0)
    model = digits.model()
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.randn(8, 1, 8, 8)).sum().backward()
    optimizer.step()
    return {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "position": {"step": 1, "consumed": 8}}


def _damage(draw: random.Random, flip: bool) -> Spoil:
    which, where, bit = draw.random(), draw.random(), draw.randrange(8)

    def spoil(folder: Path) -> None:
        path = _choose(folder, which)
        content = bytearray(path.read_bytes())
        place = int(where * len(content))
        if flip:
            content[place] ^= 1 << bit
        else:
            del content[place:]
        path.write_bytes(content)

    return spoil


def _choose(folder: Path, which: float) -> Path:
    """The file for a number from 0 to 1: below 0.9 the largest one; the smaller files share the last tenth."""
    files = sorted((path for path in folder.iterdir()), key=lambda path: path.stat().st_size, reverse=True)
    if which < 0.9 or len(files) == 1:
        return files[0]
    return files[1 + int((which - 0.9) * 10 * (len(files) - 1))]


def _ours(good: list[Path], folder: Path, spoil: Spoil) -> tuple[str, int]:
    for path in good:
        shutil.copytree(path, folder / path.name)
    spoil(folder / good[-1].name)
    usable, damaged = store.newest_usable(folder)
    shutil.rmtree(folder)
    return usable.path.name if usable else "", len(damaged)


def _plain(scratch: Path, spoil: Spoil) -> None:
    folder = scratch / "torch"
    folder.mkdir(exist_ok=True)
    shutil.copy(scratch / "plain.pt", folder / "plain.pt")
    spoil(folder)
    torch.load(folder / "plain.pt", weights_only=True)


def _dcp(scratch: Path, like: dict[str, Any], spoil: Spoil) -> None:
    folder = scratch / "spoiled"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(scratch / "dcp", folder)
    spoil(folder)
    dcp.load(
        {"model": {name: torch.empty_like(value) for name, value in like["model"].items()}},
        checkpoint_id=folder,
        no_dist=True,
    )


def _raises(load: Callable[[], None]) -> bool:
    try:
        load()
    except (Exception, CheckpointException):  # DCP's exception is not an Exception; any error counts as noticed
        return True
    return False


if __name__ == "__main__":
    alone(measure, __doc__)
