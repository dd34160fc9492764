"""runs/<id>/: made, found again, listed, and closed with the run's outcome. Formats are in docs/contract.md."""

from __future__ import annotations

import json
import os
import shutil
import statistics
import time
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from deploy.ending import Result
from deploy.errors import DeployError, UsageError
from deploy.facts import RunFacts
from deploy.progress import State
from deploy.spec import IMAGE_USER, recipe_name


@dataclass(frozen=True)
class Choice:
    """What to run: `run_dir` set means going on in that folder, else `arguments` start a new one."""

    run_dir: Path | None
    arguments: tuple[str, ...]
    workers: int | None = None
    start: int = 1


def choose(runs: Path, resume: str, arguments: Sequence[str]) -> Choice:
    """What RESUME asks for: nothing, `latest`, a run folder of ours, or somebody else's checkpoint."""
    if not resume:
        return Choice(None, tuple(arguments))
    if resume == "latest":
        return _continued(_newest_with_checkpoint(runs), arguments)
    path = Path(resume).expanduser().resolve()
    if not path.is_dir():
        raise UsageError(f"RESUME={resume}: no such folder", "`make runs` lists the runs of this checkout")
    if path.parent == runs.resolve():
        if not has_checkpoint(path):
            raise UsageError(f"RESUME={resume}: no checkpoint in that run yet", "`make up` starts a new one")
        return _continued(path, arguments)
    return Choice(None, (*arguments, "--resume", str(path)))


def make_folder(runs: Path, arguments: Sequence[str], now: float, taken: Collection[str] = ()) -> Path:
    """A new run folder, `<minute>-<recipe>`; mkdir decides who gets the name when two start at once.

    `taken` are ids to pass over: on one engine, runs of another checkout may have the same name.
    """
    runs.mkdir(parents=True, exist_ok=True)
    name = f"{time.strftime('%Y-%m-%d-%H%M', time.localtime(now))}-{recipe_name(arguments)}"
    for attempt in range(1, 1000):
        folder = runs / (name if attempt == 1 else f"{name}-{attempt}")
        if folder.name in taken:
            continue
        try:
            folder.mkdir()
        except FileExistsError:
            continue
        except OSError as fault:
            raise DeployError(f"{runs}: cannot make a run folder: {fault.strerror}") from fault
        return folder
    raise DeployError(f"{runs}: a thousand runs named {name}")


def open_start(
    run_dir: Path, choice: Choice, ground: str, why: str, names: Collection[str], now: float
) -> dict[str, bytes]:
    """Write this start into record.json, and take away what the start before left about its nodes.

    Returns what `undo_start` needs to make it unsaid.
    """
    kept = {
        path.name: path.read_bytes() for path in (run_dir / "record.json", run_dir / "outcome.json") if path.exists()
    }
    for folder in ("nodes", "outcome", "ranks", "logs"):
        (run_dir / folder).mkdir(exist_ok=True)
    for stale in (*run_dir.glob("nodes/*.json"), *run_dir.glob("outcome/*.json"), run_dir / "outcome.json"):
        stale.unlink(missing_ok=True)
    before = read_json(run_dir / "record.json")
    start = {"t": now, "ground": ground, "nodes": list(names), "arguments": list(choice.arguments)}
    record = {
        "id": run_dir.name,
        "started": before.get("started", now),
        "ground": ground,
        "why": why,
        "nodes": list(names),
        "workers": len(names) - 1,
        "arguments": list(choice.arguments),
        "starts": [*before.get("starts", []), start],
    }
    write_json(run_dir / "record.json", record)
    point_latest(run_dir)
    return kept


def undo_start(run_dir: Path, kept: dict[str, bytes]) -> None:
    """Forget a start that was refused before any rank began: a new folder goes, one gone on in is as it was."""
    if kept:
        for name, content in kept.items():
            (run_dir / name).write_bytes(content)
        return
    shutil.rmtree(run_dir)
    others = [path for path in run_dir.parent.glob("*") if path.is_dir() and not path.is_symlink()]
    if others:
        point_latest(max(others, key=_started))
    else:
        (run_dir.parent / "latest").unlink(missing_ok=True)


def give_to_image_user(run_dir: Path) -> None:
    """Made by root, the folder would be closed to the image's user."""
    if os.geteuid() == 0:
        for path in (run_dir, *run_dir.rglob("*")):
            os.chown(path, IMAGE_USER, IMAGE_USER, follow_symlinks=False)


def close(run_dir: Path, result: Result, state: State, seconds: float) -> dict[str, Any]:
    """Write outcome.json and timeline.jsonl; returns the outcome. `seconds` are of this start, up to now."""
    values = state.evaluated.get("values", {})
    outcome = {
        "t": round(time.time(), 3),
        "verdict": result.verdict,
        "code": result.code,
        **{name: getattr(result, name) for name in ("node", "rank", "step", "message", "hint")},
        "seconds": round(seconds, 1),
        "samples_per_s": round(statistics.median(state.rates), 1) if state.rates else None,
        "accuracy": values.get("accuracy"),
        "values": values,
        "samples": state.evaluated.get("samples"),
        "restarts": state.restarts,
    }
    with (run_dir / "timeline.jsonl").open("a") as file:
        file.writelines(json.dumps(asdict(line)) + "\n" for line in state.story)
    write_json(run_dir / "outcome.json", outcome)
    return outcome


def listing(runs: Path, going_on: Collection[str]) -> list[RunFacts]:
    """All runs, newest last."""
    folders = [path for path in runs.glob("*") if path.is_dir() and not path.is_symlink()]
    return [_listed(path, going_on) for path in sorted(folders, key=_started)]


def find(runs: Path, name: str) -> Path:
    """The run folder that `latest`, an id or a path names."""
    for path in (runs / name, Path(name).expanduser()):
        if path.is_dir():
            return path.resolve()
    raise UsageError(f"RUN={name}: no such run", "`make runs` lists them")


def has_checkpoint(run_dir: Path) -> bool:
    """Whether a resume would find something (the trainer checks whether it is whole)."""
    return any(run_dir.glob("checkpoints/step-*/manifest.json"))


def point_latest(run_dir: Path) -> None:
    """Make runs/latest name this run; a reader sees the old or the new link, never none."""
    aside = run_dir.parent / f".latest.{os.getpid()}"
    aside.unlink(missing_ok=True)
    aside.symlink_to(run_dir.name)
    aside.replace(run_dir.parent / "latest")


def write_json(path: Path, value: Any) -> None:
    """Replace `path` whole."""
    aside = path.with_name(f".{path.name}.{os.getpid()}")
    aside.write_text(json.dumps(value, indent=2) + "\n")
    aside.replace(path)


def read_json(path: Path) -> dict[str, Any]:
    """The document at `path`; {} when there is none or it is no JSON object."""
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _continued(run_dir: Path, arguments: Sequence[str]) -> Choice:
    record = read_json(run_dir / "record.json")
    if not record:
        raise UsageError(f"{run_dir}: no record.json, so its arguments are not known", f"RESUME={run_dir}/checkpoints")
    # Given later, an option overrides the recorded one.
    merged = (*record.get("arguments", ()), *arguments)
    return Choice(run_dir, merged, record.get("workers"), len(record.get("starts", ())) + 1)


def _newest_with_checkpoint(runs: Path) -> Path:
    folders = [path for path in runs.glob("*") if path.is_dir() and not path.is_symlink() and has_checkpoint(path)]
    if not folders:
        raise UsageError(f"RESUME=latest: no run in {runs} has a checkpoint", "`make up` starts a new one")
    return max(folders, key=_started)


def _started(run_dir: Path) -> tuple[float, str]:
    starts = read_json(run_dir / "record.json").get("starts") or [{}]
    return float(starts[-1].get("t", 0.0)), run_dir.name


def _listed(run_dir: Path, going_on: Collection[str]) -> RunFacts:
    outcome = read_json(run_dir / "outcome.json")
    verdict = "running" if run_dir.name in going_on else str(outcome.get("verdict", "unfinished"))
    steps = sorted(path.name for path in run_dir.glob("checkpoints/step-*"))
    step = outcome.get("step") or (int(steps[-1].removeprefix("step-")) if steps else None)
    return RunFacts(run_dir.name, verdict, outcome.get("accuracy"), step, outcome.get("seconds"), _bytes(run_dir))


def _bytes(folder: Path) -> int:
    total = 0
    for path in folder.rglob("*"):
        with suppress(FileNotFoundError):  # a run going on removes its old checkpoints
            total += path.lstat().st_size if path.is_file() else 0
    return total
