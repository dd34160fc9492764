"""`fab explain FILE|RUN`: reads what a failed run said, ours or anybody's torchrun, and says what it shows."""

from __future__ import annotations

from pathlib import Path

from fabric import Connection, task
from invoke.exceptions import Exit

from deploy import launch, record, task_end
from deploy.errors import DONE, FAILED, UsageError
from deploy.explain import Explanation, explain
from deploy.report import Report

# The end of a log says how it ended; its beginning, how it started. What is between is training.
MOST_BYTES, SHOWN = 8 << 20, 200
LOGS = ("logs/*.log", "*.log", "*.txt", "*.out", "*.err")


@task(
    positional=["what"],
    help={"what": "a file, a folder of logs (one a node), or a run: its id or latest", "json": "one JSON object"},
    name="explain",
)  # type: ignore[untyped-decorator]
def explain_task(context: Connection, what: str, json: bool = False) -> None:
    """Say which known cause a failed run's output shows, or what to check. 0: a cause is named; 1: none is known."""
    report = Report(json)
    raise Exit(code=task_end.code_of(report, lambda: tell(what, report)))


def tell(what: str, report: Report) -> int:
    """Explain a file, a folder or a run. Raises UsageError where there is nothing to read."""
    found = explain(texts_of(what))
    report.data({"kind": "explanation", **found.json()})
    report.text("\n".join(lines_of(found)))
    return DONE if found.cause else FAILED


def texts_of(what: str) -> dict[str, str]:
    """The output by node. Raises UsageError where there is none."""
    path = Path(what).expanduser()
    if path.is_file():
        return {path.stem: _read(path)}
    folder = path if path.is_dir() else record.find(launch.RUNS, what)
    for pattern in LOGS:
        files = sorted(folder.glob(pattern))
        if files:
            return {file.stem: _read(file) for file in files}
    raise UsageError(f"{what}: no logs in {folder}", "name a file with the output, or a folder of *.log, one a node")


def lines_of(found: Explanation) -> list[str]:
    """As people read it."""
    lines = [f"cause     {found.cause or 'not known'}: {found.what}"]
    if found.maybe:
        lines.append(f"or        {', '.join(found.maybe)}: the same words")
    lines += [f"evidence  {line.node}:{line.number}: {line.text[:SHOWN]}" for line in found.evidence]
    lines.append(f"next      {found.next}" + (f"   (docs/troubleshooting.md#{found.cause})" if found.cause else ""))
    return lines


def _read(path: Path) -> str:
    try:
        data = path.read_bytes()
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}") from fault
    if len(data) > MOST_BYTES:
        data = data[: MOST_BYTES // 2] + b"\n" + data[-MOST_BYTES // 2 :]
    return data.decode(errors="replace")
