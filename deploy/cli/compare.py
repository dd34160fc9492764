"""`fab compare RUN RUN`: compare two runs of this machine."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

from ..core.errors import DONE, DeployError
from ..core.program import FAB
from ..job.options import Options
from ..report import compare as report
from ..report.console import Console
from ..run import folders, record
from .command import command


@command(
    example=(f"{FAB} compare first latest", f"{FAB} compare runs/a runs/b --html a-and-b.html"),
    codes={DONE: "the comparison is printed, or its page is written"},
    words={
        "first": "a run: latest, an id or a path (required)",
        "second": "the run to compare it with (required)",
    },
)
def compare(options: Options, console: Console, first: str, second: str) -> int:
    """Compare two runs: what differs, their curves, their numbers."""
    comparison = report.compare(*(record.find(folders.RUNS, run) for run in (first, second)))
    if path := options.html:
        _write(Path(path), report.page(comparison))
        console.line(path, {"kind": "page", "path": path})
    else:
        console.line("\n".join(report.lines(comparison)), {"kind": "comparison", **asdict(comparison)})
    return DONE


def _write(path: Path, markup: str) -> None:
    try:
        path.write_text(markup, encoding="ascii")
    except OSError as fault:
        raise DeployError(f"{path}: cannot be written: {fault.strerror}", "name another file") from fault
