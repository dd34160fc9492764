"""Numbers that three frameworks write into files of their own: are they told as the scripts know them?

Each script of benchmarks/measured/ runs unchanged under a real agent and keeps for itself what it logs. Compared is
every point in `scalars/<node>.jsonl`; beside it stands TensorBoard's own reader, on the same event files.

    python -m benchmarks.scalars_truth
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME

SECONDS = 300
SCRIPTS = {"torch.utils.tensorboard": "torch_writer", "Lightning": "lightning_loggers", "HF Trainer": "hf_trainer"}
Points = dict[str, list[tuple[int, float]]]
# Epochs are no measures.
_AXES = ("epoch", "step")


def measure(quick: bool) -> dict[str, Any]:
    """A row a script: how many points of each file were told as the script knows them."""
    del quick
    rows, well = [], 0
    with nodes.scratch() as scratch:
        for name, script in SCRIPTS.items():
            work = _run(scratch / script, script)
            own = {tag: [(step, value) for step, value in points] for tag, points in _json(work / "own.json").items()}
            told = _told(work.parent)
            board = _tensorboard(work)
            wrong, points = _faults(told, own), sum(len(values) for tags in told.values() for values in tags.values())
            say(f"{name}: {wrong or 'equal'}")
            equal = all(told.get(path, {}) == tags for path, tags in board.items())
            rows.append(
                Row(
                    f"{name}: points told, of {len(told)} files",
                    f"{points}, {len(wrong)} wrong or missing",
                    f"tensorboard: {sum(len(v) for tags in board.values() for v in tags.values())}, "
                    + ("the same" if equal else "not the same"),
                    target="all equal",
                    met=not wrong and equal and points > 0,
                )
            )
            well += not wrong and equal
    rows.append(
        Row("scripts whose numbers are told rightly", f"{well} of {len(SCRIPTS)}", target="3 of 3", met=well == 3)
    )
    return result(rows, ["a number that a file keeps as float32 is compared as float32"])


def _run(run: Path, script: str) -> Path:
    """Have the agent run a script to its end; returns the folder it worked in."""
    sent = run.with_name(f"{run.name}-sent")
    sent.mkdir()
    (sent / f"{script}.py").write_text((HOME / "benchmarks" / "measured" / f"{script}.py").read_text())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_"))}
    environment |= {
        "PET_NPROC_PER_NODE": "1",
        "PET_MASTER_PORT": "0",
        "MUSTER_RUN_DIR": str(run),
        "MUSTER_NODE": "here",
    }
    environment |= {"MUSTER_SENT": str(sent), "PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", "MUSTER_SEPARATE": "1"}
    run.mkdir()
    with (run / "console").open("w") as console:
        subprocess.run(
            [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", f"{script}.py"],
            cwd=sent, env=environment, stdout=console, stderr=console, check=True, timeout=SECONDS,
        )  # fmt: skip
    return run / "work"


def _json(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def _told(run: Path) -> dict[str, Points]:
    """By file what the node told."""
    told: dict[str, Points] = {}
    for line in (run / "scalars" / "here.jsonl").read_text().splitlines():
        event = json.loads(line)
        for tag, points in event["tags"].items():
            told.setdefault(event["file"], {}).setdefault(tag, []).extend((step, value) for step, value in points)
    return told


def _tensorboard(work: Path) -> dict[str, Points]:
    """By event file what TensorBoard's reader finds in it."""
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator  # type: ignore[import-untyped]
    from tensorboard.util.tensor_util import make_ndarray  # type: ignore[import-untyped]

    found: dict[str, Points] = {}
    for path in work.rglob("events.out.tfevents.*"):
        reader = EventAccumulator(str(path), size_guidance={"scalars": 0, "tensors": 0})
        reader.Reload()
        tags = {tag: [(point.step, point.value) for point in reader.Scalars(tag)] for tag in reader.Tags()["scalars"]}
        for tag in reader.Tags()["tensors"]:
            tensors = [(point.step, make_ndarray(point.tensor_proto)) for point in reader.Tensors(tag)]
            if all(value.dtype.kind == "f" and value.size == 1 for _, value in tensors):
                tags[tag] = [(step, float(value)) for step, value in tensors]
        found[path.relative_to(work.parent).as_posix()] = {
            tag: points for tag, points in tags.items() if tag.split("/")[-1] not in _AXES
        }
    return found


def _faults(told: dict[str, Points], own: Points) -> list[str]:
    """Points that are not the script's own, and names of the script's that no file told whole."""
    known = {tag: dict(points) for tag, points in own.items()}
    faults = [
        f"{path}: {tag} at {step} is {value}"
        for path, tags in told.items()
        for tag, points in tags.items()
        for step, value in points
        if not _is_known(tag, step, value, known)
    ]
    for tag, points in known.items():
        told_steps = {step for tags in told.values() for name in _names(tag) for step, _ in tags.get(name, [])}
        if tag not in _AXES and (missing := points.keys() - told_steps):
            faults.append(f"{tag} at {sorted(missing)[:3]} is not told")
    return faults


def _names(tag: str) -> list[str]:
    """What a number may be called in a file: the Trainer writes eval_loss as eval/loss, and loss as train/loss."""
    return [tag, f"train/{tag}", tag.replace("eval_", "eval/", 1)]


def _is_known(tag: str, step: int, value: float, known: dict[str, dict[int, float]]) -> bool:
    values = [points[step] for name, points in known.items() if tag in _names(name) and step in points]
    return any(abs(value - own) <= 1e-6 * max(1.0, abs(own)) for own in values)


if __name__ == "__main__":
    alone(measure, __doc__)
