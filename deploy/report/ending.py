"""The end of a run on any backend: write outcome.json and the page, and show the result. Returns the exit code."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from ..image import missed
from ..image.credentials import Choice
from ..run import record
from ..run.folders import display_path
from ..run.outcome import Result
from ..run.progress import State
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
    if sent and result.verdict == "failed" and (hint := missed.hint(result.message, *sent)):
        result = replace(result, hint=hint)
    outcome = record.close(run_dir, result, state, seconds)
    path = page.write(run_dir)
    console.result(result, state, outcome, display_path(path), display_path(run_dir), fetch)
    return result.code
