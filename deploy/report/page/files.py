"""The files of a run on its page: the last lines that ranks printed, and the list of all files.

A rank's own log is read if it is on this machine; otherwise its node's console, of which `muster attach` makes a copy.
Both may contain anything: the lines are cut, and the page makes their control characters visible.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core import text as words
from ...core.errors import BadAnswer
from ...core.names import node_name
from ...core.printable import console_line
from ...job.option_words import command_of
from ...run.files import own_files
from ...run.files.record import HOSTS, backend_of
from ...run.output import rank_of
from .data import RunData, children

ROWS, LOGS = 200, 2000
LINES, WIDEST = 40, 400
_TAIL_BYTES = 64 << 10
LISTED = (
    "record.json",
    "config.json",
    "environment.json",
    "outcome.json",
    "metrics.jsonl",
    "timeline.jsonl",
    "code.diff",
    "work/",
    "home/",
    "telemetry/",
    "scalars/",
    "tensorboard/",
    "checkpoints/",
)


def last_lines(run: RunData) -> list[dict[str, Any]]:
    """The last lines of the rank that failed, and of a script's rank 0; ranks that printed nothing are left out.

    `source`: the file in the run folder that has all lines.
    """
    failed = run.outcome.get("verdict") == "failed"
    ranks = dict.fromkeys([run.outcome.get("rank") if failed else None, 0 if run.script else None])
    return [last for rank in ranks if rank is not None and (last := _of_rank(run, rank))["lines"]]


def _of_rank(run: RunData, rank: int) -> dict[str, Any]:
    node, source = run.nodes.get(rank, ""), f"logs/rank-{rank}.log"
    lines = _readable(_tail(run, source))
    with suppress(BadAnswer):
        if not lines:
            source = f"logs/{node_name(node)}.log"
            on_node = [other for other, name in run.nodes.items() if name == node]
            marked = (rank_of(line, on_node) for line in _tail(run, source))
            lines = _readable([line for whose, line in marked if whose == rank])
    return {"rank": rank, "node": node, "source": source, "lines": lines}


def _tail(run: RunData, name: str) -> list[str]:
    """The last lines of a file in the run folder; none if it cannot be read."""
    with suppress(OSError):
        end, before = own_files.read_end(run.folder, name, _TAIL_BYTES)
        lines = end.decode(errors="replace").split("\n")
        return lines[1:] if before and len(lines) > 1 else lines
    return []


def _readable(lines: list[str]) -> list[str]:
    """The last lines, shortened if they are too long; for a progress bar only its last state."""
    readable = [line for line in map(console_line, lines) if line]
    return [words.shortened(line, WIDEST) for line in readable[-LINES:]]


def listed(folder: Path) -> list[tuple[str, str, str]]:
    """The files and folders of the run that a page may link to: name, link and size."""
    logs = _names(folder / "logs", lambda path: path.suffix == ".log")
    ranks = _names(folder / "ranks", lambda path: path.suffix == ".jsonl")
    wanted = [*LISTED, *(f"logs/{name}" for name in logs), *(f"ranks/{name}" for name in ranks)]
    return [(name, quote(name, errors="replace"), size) for name in wanted if (size := _size(folder / name))]


def on_hosts(run: RunData) -> tuple[list[tuple[str, str]], str]:
    """What the nodes left on their hosts, and the command that copies it here, if this machine recorded the hosts."""
    rows = [
        (node, f"{words.several(each['files'], 'file')}, {words.amount(each['bytes'])}")
        for node, each in run.outcome.get("kept", {}).items()
        if each["files"]
    ][:ROWS]
    hosts = ",".join(run.own.get("hosts", ())) if backend_of(run.own) == HOSTS else ""
    return rows, f"{command_of('fetch', hosts=hosts)} {run.folder.name}" if hosts else ""


def _names(folder: Path, wanted: Callable[[Path], bool]) -> list[str]:
    """The `wanted` names in a folder, shorter names first, so that rank-2 comes before rank-10."""
    return sorted((path.name for path in children(folder) if wanted(path)), key=lambda name: (len(name), name))


def _size(path: Path) -> str:
    """The size of a file or folder; empty if it does not exist (a running run removes old checkpoints)."""
    try:
        size = path.stat().st_size
    except OSError:
        return ""
    if not path.is_dir():
        return words.amount(size)
    return words.several(len(_names(path, lambda child: not child.name.startswith("."))), "item")
