"""What six frameworks write where they write by default: is it home after `fab fetch`, however the run ended?

Each script of benchmarks/frameworks/ runs unchanged on two hosts of a rack, and ends in four ways: done, failed, its
containers killed (SIGKILL), its hosts restarted. A case counts if every file that a rank had written is home with the
content that it has on the host.

    python -m benchmarks.kept_files [--quick] [--json]
"""

from __future__ import annotations

import hashlib
import json
import shlex
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from benchmarks import figure, racks
from benchmarks.figure import Row
from benchmarks.venv import HOME

_FOLDER, _IMAGE = HOME / "benchmarks" / "frameworks", "muster-frameworks:cpu"
SCRIPTS = {
    "torch.save": "plain_torch.py",
    "TensorBoard": "tensorboard_runs.py",
    "Lightning": "lightning_logs.py",
    "HF Trainer": "hf_trainer.py",
    "Hydra": "hydra_outputs.py",
    "wandb (offline)": "wandb_offline.py",
}
ENDS = ("done", "failed", "killed", "reboot")
_WITHIN_S = 240.0


def measure(quick: bool) -> dict[str, Any]:
    """Every framework with every end; `quick`: one framework."""
    line = ["images/packages.sh", "requirements/bench.txt", _IMAGE]
    subprocess.run(line, cwd=HOME, check=True, capture_output=True)
    scripts = dict(list(SCRIPTS.items())[:1]) if quick else SCRIPTS
    rows, well, total = [], 0, 0
    with racks.rack(2, "classic") as rack:
        for name, script in scripts.items():
            cells = []
            for end in ENDS:
                missing, files = _case(rack, script, end)
                figure.say(
                    f"{name}, {end}: {files - len(missing)} of {files} files{f': not {missing[:3]}' * bool(missing)}"
                )
                cells.append(f"{end} {files - len(missing)}/{files}")
                well, total = well + (files > 0 and not missing), total + 1
            rows.append(Row(f"{name}: files home after", ", ".join(cells)))
    rows.append(
        Row("cases with every file home", f"{well} of {total}", target=f"{total} of {total}", met=well == total)
    )
    notes = ["reboot: the host's container is restarted, so what its page cache held is not lost as in a power cut"]
    return figure.result(rows, notes)


def _case(rack: racks.Rack, script: str, end: str) -> tuple[list[str], int]:
    """One run: the files that are not home as they are on their host, and how many were written."""
    run = f"kept-{uuid.uuid4().hex[:6]}"
    run_dir = HOME / "runs" / run
    try:
        how = end if end in ("done", "failed") else "waits"
        words = ("--folder", str(_FOLDER), "--image", _IMAGE, "--env", f"FRAMEWORK_END={how}", "--detach")
        _fab(rack, "deploy", "--run", run, *words, "--script", script)
        _until(lambda: _ready(rack, run, how), f"{run} ({script}, {end})")
        if end == "killed":
            for host in rack.names:
                # A rank that has lost its peer may have ended by itself.
                rack.on(host, f"docker kill muster-{run} >&2; true")
        elif end == "reboot":
            for container in rack.containers.values():
                subprocess.run(["docker", "restart", "--time", "1", container], check=True, capture_output=True)
            _until(lambda: all(_answers(rack, host) for host in rack.names), "the hosts to be back")
        _fab(rack, "fetch", "--run", run)
        pairs = [pair for host in rack.names for pair in _written(rack, host, run)]
        return [path for host, path in pairs if not _is_home(rack, run_dir, host, run, path)], len(pairs)
    finally:
        with suppress(subprocess.CalledProcessError):
            _fab(rack, "stop", "--now", "--run", run)
        _fab(rack, "down", "--run", run, "--delete")
        shutil.rmtree(run_dir, ignore_errors=True)


def _fab(rack: racks.Rack, task: str, *words: str) -> None:
    line = [Path(sys.executable).with_name("fab"), task, "--hosts", ",".join(rack.names), *words]
    done = subprocess.run(line, cwd=HOME, capture_output=True, text=True, check=False)
    if done.returncode:
        if task == "deploy":
            figure.say(done.stderr)
        raise subprocess.CalledProcessError(done.returncode, line, done.stdout, done.stderr)


def _ready(rack: racks.Rack, run: str, how: str) -> bool:
    """Whether the run has ended, if it ends by itself; else whether every rank has written all its files."""
    if how == "waits":
        return all("expected" in rack.on(host, f"ls .muster/runs/{run}/home; true") for host in rack.names)
    states = [
        rack.on(host, "docker", "inspect", "--format", "{{.State.Running}}", f"muster-{run}") for host in rack.names
    ]
    return states == ["false"] * len(states)


def _written(rack: racks.Rack, host: str, run: str) -> list[tuple[str, str]]:
    """What the ranks of a host said they had written."""
    text = rack.on(host, f"cat .muster/runs/{run}/home/expected-*.json")
    return [(host, path) for path in json.loads(text)]


def _is_home(rack: racks.Rack, run_dir: Path, host: str, run: str, path: str) -> bool:
    there = rack.on(host, f"sha256sum {shlex.quote(f'.muster/runs/{run}/{path}')}").split()[0]
    return any(
        place.is_file() and hashlib.sha256(place.read_bytes()).hexdigest() == there
        for place in (run_dir / path, run_dir / "hosts" / host / path)
    )


def _answers(rack: racks.Rack, host: str) -> bool:
    with suppress(subprocess.CalledProcessError):
        return bool(rack.on(host, "docker", "info", "--format", "{{.ID}}"))
    return False


def _until(holds: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WITHIN_S
    while not holds():
        if time.monotonic() > deadline:
            raise RuntimeError(f"{what}: not within {_WITHIN_S:.0f} s")
        time.sleep(0.5)


if __name__ == "__main__":
    figure.alone(measure, __doc__)
