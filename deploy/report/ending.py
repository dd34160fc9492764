"""The end of a run on any backend: write outcome.json and the page, and show the result. Returns the exit code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..image import missed
from ..image.credentials import Choice
from ..packages import requirements
from ..run import record
from ..run.folders import display_path
from ..run.outcome import CODES, Result
from ..run.progress import State
from ..run.rank_view import RankView
from .console import Console
from .page import run as page


def end(
    run_dir: Path,
    result: Result,
    state: State,
    seconds: float,
    console: Console,
    fetch: str = "",
    sent: tuple[Path, Choice] | None = None,
) -> int:
    """Write the end of the run into its folder and show it. `seconds` since its start; returns its exit code.

    `fetch` is the command that copies the run's files from its hosts; `sent`: the folder that was sent, and by which
    choice.
    """
    if sent and result.verdict == "failed":
        options = str(record.own(run_dir).get("again") or "")
        hint = _hint(result.message, *sent) or (missed.of_hosts(result.message, options) if fetch else "")
        result = replace(result, hint=hint or result.hint)
    outcome = record.close(run_dir, result, state, seconds)
    path = page.write(run_dir)
    console.result(result, state, outcome, display_path(path), display_path(run_dir), fetch)
    return result.code


def _hint(message: str, folder: Path, choice: Choice) -> str:
    there = [name for name in requirements.FOUND if (folder / name).is_file()]
    return missed.hint(message, folder, choice, requirements.find(folder, "", there)[0])


def show_again(run_dir: Path, outcome: Mapping[str, Any], script: bool, console: Console, fetch: str) -> int:
    """Show an end that was written earlier, from its outcome.json; returns the run's exit code."""
    verdict = outcome["verdict"] if outcome.get("verdict") in CODES else "failed"
    step = int(outcome.get("step") or 0)
    result = Result(
        verdict, outcome.get("message") or "", outcome.get("hint") or "", outcome.get("node") or "", step=step
    )
    files = outcome.get("kept") or {}
    names = tuple(str(name) for name in record.facts(run_dir).get("nodes", ()))
    state = State(names or tuple(files), script=script)
    state.files_left = {node: (left["files"], left["bytes"]) for node, left in files.items()}
    state.evaluated = {"values": outcome.get("values") or {}, "samples": outcome.get("samples") or 0}
    if step:
        state.ranks[0] = RankView(0, "", step=step)
    shown = {**outcome, "seconds": float(outcome.get("seconds") or 0.0)}
    console.result(result, state, shown, display_path(run_dir / "report.html"), display_path(run_dir), fetch)
    return result.code
