"""The files of a run on its page: the last lines that ranks printed, what the script wrote, and the list of all.

A rank's own log is read where it is here; else its node's console, of which `fab attach` has a copy. Both may hold
anything: the lines are cut, and the page makes their control characters visible.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ...core import text
from ...core.errors import BadAnswer
from ...core.names import node_name
from ...core.printable import console_line
from ...host import replaceable
from ...run import own_files, record
from ...run.output import rank_of
from . import units as words
from .data import Fields, RunData, children, number

ROWS = 200
LINES, WIDEST = 40, 400
_TAIL_BYTES = 64 << 10
FOLDERS = ("work", "home")
LARGEST, NODES = 12, 64
_MOST_LOOKED_AT = 20_000
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


@dataclass(frozen=True)
class Rows:
    """The rows of a table or list, as many as the page shows."""

    shown: list[Any]
    left_out: int


@dataclass(frozen=True)
class LinkedFile:
    """A file or folder of the run: its name, its link, and its size."""

    name: str
    link: str
    size: str


@dataclass(frozen=True)
class LastLines:
    """The end of the output of one rank. `source`: the file in the run folder that has all of it."""

    rank: int
    node: str
    source: str
    lines: list[str]


def last_lines(run: RunData) -> list[LastLines]:
    """For a script, and for a failed run of the trainer; without ranks that printed nothing."""
    failed = run.outcome.get("verdict") == "failed"
    culprit = number(run.outcome.get("rank")) if failed else None
    ranks = dict.fromkeys([*([0] if run.script else []), *([] if culprit is None else [int(culprit)])])
    return [last for rank in ranks if (last := _of_rank(run, rank)).lines]


def _of_rank(run: RunData, rank: int) -> LastLines:
    node = run.nodes.get(rank, "")
    own = f"logs/rank-{rank}.log"
    if lines := _readable(_tail(run, own)):
        return LastLines(rank, node, own, lines)
    try:
        console = f"logs/{node_name(node)}.log"
    except BadAnswer:
        return LastLines(rank, node, own, [])
    on_node = [other for other, name in run.nodes.items() if name == node]
    marked = (rank_of(line, on_node) for line in _tail(run, console))
    return LastLines(rank, node, console, _readable([line for whose, line in marked if whose == rank]))


def _tail(run: RunData, name: str) -> list[str]:
    """The last lines of a file in the run folder; none if it cannot be read."""
    try:
        with own_files.open_to_read(run.folder, name) as file:
            size = os.fstat(file.fileno()).st_size
            file.seek(max(0, size - _TAIL_BYTES))
            lines = file.read(_TAIL_BYTES).decode(errors="replace").split("\n")
    except OSError:
        return []
    return lines[1:] if size > _TAIL_BYTES and len(lines) > 1 else lines


def _readable(lines: list[str]) -> list[str]:
    """The last lines, shortened if too long; of a progress bar only its last state."""
    readable = [line for line in map(console_line, lines) if line]
    return [text.shortened(line, WIDEST) for line in readable[-LINES:]]


@dataclass(frozen=True)
class WrittenFiles:
    """`nodes`: name, files, size. `files`: path in the run folder, link, size; the largest ones here."""

    nodes: list[tuple[str, str, str]] = field(default_factory=list)
    files: list[tuple[str, str, str]] = field(default_factory=list)


def written(run: RunData) -> WrittenFiles:
    """The values of the section; empty for a run of the trainer, and if the script wrote nothing."""
    if not run.script:
        return WrittenFiles()
    return WrittenFiles(list(islice(_left_on_nodes(run), NODES)), _largest(run.folder))


def _left_on_nodes(run: RunData) -> Iterator[tuple[str, str, str]]:
    """From the control side's record of the end; without that, from the nodes' agents.

    Nodes of one machine share the run folder: the last and highest count includes all files.
    """
    by_agents: Fields = {event.node: event.fields for event in run.events if event.kind == "kept"}
    recorded = run.outcome.get("kept")
    rows = []
    for node, fields in (recorded if isinstance(recorded, dict) else by_agents).items():
        files, size = (number(fields.get(name)) if isinstance(fields, dict) else None for name in ("files", "bytes"))
        if files and size is not None:
            rows.append((files, size, str(node)))
    if rows and not run.record.get("hosts"):
        rows = [(*max(rows)[:2], "on this machine")]
    for files, size, node in rows:
        yield node, words.several(int(files), "file"), words.size(size)


def _largest(folder: Path) -> list[tuple[str, str, str]]:
    sent = record.read_json(folder / "sent.json")
    files = sorted(islice(_plain_files(folder), _MOST_LOOKED_AT), key=lambda file: (-file[1], file[0]))
    mine = [(path, size) for path, size in files if path.removeprefix("work/") not in sent or path.startswith("home/")]
    return [(path, quote(path, errors="replace"), words.size(size)) for path, size in mine[:LARGEST]]


def _plain_files(folder: Path) -> Iterator[tuple[str, int]]:
    """The plain files below work/ and home/ with their sizes, but for what can be had again. It follows no link."""
    for top in FOLDERS:
        if (folder / top).is_symlink():
            continue
        for place, folders, names in os.walk(folder / top):
            folders.sort(key=lambda name: (name.startswith("."), name))
            for name in sorted(names):
                path = Path(place) / name
                if not path.is_symlink() and path.is_file():
                    inside, size = path.relative_to(folder).as_posix(), path.lstat().st_size
                    if not replaceable.kind_of(inside, size):
                        yield inside, size


def listed(folder: Path) -> Rows:
    """The files and folders of the run that the page links."""
    logs = _names(folder / "logs", lambda path: path.suffix == ".log")
    ranks = _names(folder / "ranks", lambda path: path.suffix == ".jsonl")
    wanted = [*LISTED, *(f"logs/{name}" for name in logs), *(f"ranks/{name}" for name in ranks)]
    files = [file for name in wanted if (file := _file(folder, name))]
    return Rows(files[:ROWS], max(0, len(files) - ROWS))


def _names(folder: Path, wanted: Callable[[Path], bool]) -> list[str]:
    """The names in a folder, rank-2 before rank-10."""
    return sorted((path.name for path in children(folder) if wanted(path)), key=lambda name: (len(name), name))


def _file(folder: Path, name: str) -> LinkedFile | None:
    """One file for the list; None if it does not exist (a running run removes old checkpoints)."""
    path = folder / name
    try:
        size = path.stat().st_size
    except OSError:
        return None
    inside = len(_names(path, lambda child: not child.name.startswith(".")))
    note = words.several(inside, "item") if path.is_dir() else words.size(size)
    return LinkedFile(name, quote(name, errors="replace"), note)
