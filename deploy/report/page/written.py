"""The files that a script wrote: how many on each node, and the largest ones on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from ...host import replaceable
from ...run import record
from . import units as words
from .data import Fields, Run, number

FOLDERS = ("work", "home")
LARGEST, NODES = 12, 64
_MOST_LOOKED_AT = 20_000


@dataclass(frozen=True)
class WrittenFiles:
    """`nodes`: name, files, size. `files`: path in the run folder, link, size; the largest ones here."""

    nodes: list[tuple[str, str, str]] = field(default_factory=list)
    files: list[tuple[str, str, str]] = field(default_factory=list)


def section(run: Run) -> WrittenFiles:
    """The values of the section; empty for a run of the trainer, and if the script wrote nothing."""
    if not run.script:
        return WrittenFiles()
    return WrittenFiles(list(islice(_nodes(run), NODES)), _largest(run.folder))


def _nodes(run: Run) -> Iterator[tuple[str, str, str]]:
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
    files = sorted(islice(_files(folder), _MOST_LOOKED_AT), key=lambda file: (-file[1], file[0]))
    mine = [(path, size) for path, size in files if path.removeprefix("work/") not in sent or path.startswith("home/")]
    return [(path, quote(path, errors="replace"), words.size(size)) for path, size in mine[:LARGEST]]


def _files(folder: Path) -> Iterator[tuple[str, int]]:
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
                    if not replaceable.end_of(inside, size):
                        yield inside, size
