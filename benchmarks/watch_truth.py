"""What the watcher tells of eight unchanged scripts, against what each knows of its own training.

    python -m benchmarks.watch_truth [--quick]

The scripts are in `benchmarks/watched/`; two ranks run them on this machine, under a real agent. Compared are rank 0's
steps, the loss at each step that was looked at (equal to 1e-6), and the seconds spent waiting for data: what a script
measures around the reading of its samples, to which the loader adds its own work (up to a quarter and 0.1 s is equal).
"""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say
from benchmarks.venv import HOME

RANKS, SECONDS = 2, 300
SCRIPTS = {
    "plain DDP": ("ddp", "torch"),
    "AMP with GradScaler": ("amp", "torch"),
    "gradient accumulation": ("accumulation", "torch"),
    "two optimizers (GAN)": ("gan", "torch"),
    "LBFGS": ("lbfgs", "torch"),
    "Lightning": ("lightning_fit", "lightning"),
    "Accelerate": ("accelerate_loop", "accelerate"),
    "HF Trainer": ("hf_trainer", "transformers"),
}


@dataclass
class Reported:
    """What a run folder says of rank 0."""

    steps: int = 0
    skipped: int = 0
    data_s: float = 0.0
    losses: dict[int, float] = field(default_factory=dict)
    unseen: list[str] = field(default_factory=list)


def measure(quick: bool) -> dict[str, Any]:
    """A row a script: steps, losses and data wait as told, and as the script knows them."""
    rows, equal, wrong = [], 0, 0
    with nodes.scratch() as scratch:
        for name, (script, needs) in SCRIPTS.items():
            if not importlib.util.find_spec(needs):
                rows.append(Row(name, f"{needs} is not installed"))
                continue
            reported, own = _run(scratch / script, script, 60 if quick else 300)
            faults = _faults(reported, own)
            say(f"{name}: {faults or 'equal'}")
            equal += not faults and not reported.unseen
            wrong += bool(faults)
            rows.append(_row(name, reported, own, faults))
    rows.append(Row("scripts told of rightly", f"{equal} of {len(SCRIPTS)}", target=">= 6", met=equal >= 6))
    rows.append(Row("... told of wrongly", str(wrong), target="0", met=wrong == 0))
    return result(
        rows, ["of each: steps (skipped), losses compared, seconds waiting for data; rival: the script itself"]
    )


def _run(folder: Path, script: str, steps: int) -> tuple[Reported, dict[str, Any]]:
    """Have the agent run a script to its end."""
    folder.mkdir()
    for name in ("own", script):
        (folder / f"{name}.py").write_text((HOME / "benchmarks" / "watched" / f"{name}.py").read_text())
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PET_", "MUSTER_"))}
    environment |= {"PET_NPROC_PER_NODE": str(RANKS), "PET_MASTER_PORT": "0", "MUSTER_RUN_DIR": str(folder / "run")}
    environment |= {"PYTHONPATH": str(HOME), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    environment |= {"OWN": str(folder), "STEPS": str(steps), "MUSTER_NODE": "here"}
    command = [sys.executable, "-P", "-m", "muster.trainer.node", "agent", "--script", f"{script}.py"]
    with (folder / "console").open("w") as console:
        subprocess.run(
            command, cwd=folder, env=environment, stdout=console, stderr=console, check=True, timeout=SECONDS
        )
    return _reported(folder / "run"), json.loads((folder / "own-0.json").read_text())


def _reported(run: Path) -> Reported:
    reported = Reported()
    for line in (run / "ranks" / "rank-0.jsonl").read_text().splitlines():
        event = json.loads(line)
        if event["kind"] == "step":
            reported.steps, reported.skipped = event["step"], event.get("skipped", 0)
            reported.data_s += event["data_ms"] * event["count"] / 1e3
        elif event["kind"] == "unseen":
            reported.unseen.append(event["what"])
    metrics = run / "metrics.jsonl"
    for line in metrics.read_text().splitlines() if metrics.exists() else ():
        point = json.loads(line)
        reported.losses[point["step"]] = point["loss"]
    return reported


def _faults(reported: Reported, own: dict[str, Any]) -> list[str]:
    """Where what was told is not what the script knows; what was said to be unseen is no fault."""
    faults = []
    if (reported.steps, reported.skipped) != (own["steps"], own["skipped"]) and "steps" not in reported.unseen:
        faults.append(f"steps {reported.steps} ({reported.skipped}), own {own['steps']} ({own['skipped']})")
    known = {int(step): loss for step, loss in own["losses"].items()}
    off = [
        step for step, loss in reported.losses.items() if abs(loss - known.get(step, loss + 1)) > 1e-6 * max(1.0, loss)
    ]
    if off or (len(reported.losses) < 5 and "loss" not in reported.unseen):
        faults.append(f"losses {len(reported.losses)}, not equal at {off[:3]}")
    if not own["data_s"] * 0.98 <= reported.data_s <= own["data_s"] * 1.25 + 0.1 and "data" not in reported.unseen:
        faults.append(f"data {reported.data_s:.2f} s, own {own['data_s']:.2f} s")
    return faults


def _row(name: str, reported: Reported, own: dict[str, Any], faults: list[str]) -> Row:
    ours = f"{reported.steps} ({reported.skipped}), {len(reported.losses)} losses, {reported.data_s:.2f} s"
    unseen = f"; unseen: {', '.join(reported.unseen)}" if reported.unseen else ""
    theirs = f"{own['steps']} ({own['skipped']}), {'not ' if faults else ''}equal, {own['data_s']:.2f} s"
    return Row(name, ours + unseen, theirs, target="equal or said", met=not faults)


if __name__ == "__main__":
    alone(measure, __doc__)
