"""What a script has written: how much on each node, and the largest files that are on this machine."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from urllib.parse import quote

from ...run import record
from . import units as words
from .data import Fields, Run, number

FOLDERS = ("work", "home")
LARGEST, NODES = 12, 64
_MOST_LOOKED_AT = 20_000


@dataclass(frozen=True)
class Written:
    """`nodes`: name, files, size. `files`: path in the run folder, its link, size; the largest of those here."""

    nodes: list[tuple[str, str, str]] = field(default_factory=list)
    files: list[tuple[str, str, str]] = field(default_factory=list)


def section(run: Run) -> Written:
    """The values of the section; empty for a run of the trainer, and where a script has written nothing."""
    if not run.script:
        return Written()
    return Written(list(islice(_nodes(run), NODES)), _largest(run.folder))


def _nodes(run: Run) -> Iterator[tuple[str, str, str]]:
    """As the control side wrote it down at the end; where it did not see the end, as the nodes' agents tell it."""
    told: Fields = {event.node: event.fields for event in run.events if event.kind == "kept"}
    recorded = run.outcome.get("kept")
    for node, fields in (recorded if isinstance(recorded, dict) else told).items():
        files, size = (number(fields.get(name)) if isinstance(fields, dict) else None for name in ("files", "bytes"))
        if files and size is not None:
            yield str(node), words.several(int(files), "file"), words.size(size)


def _largest(folder: Path) -> list[tuple[str, str, str]]:
    sent = record.read_json(folder / "sent.json")
    found = sorted(islice(_files(folder), _MOST_LOOKED_AT), key=lambda file: (-file[1], file[0]))
    mine = [(path, size) for path, size in found if path.removeprefix("work/") not in sent or path.startswith("home/")]
    return [(path, quote(path, errors="replace"), words.size(size)) for path, size in mine[:LARGEST]]


def _files(folder: Path) -> Iterator[tuple[str, int]]:
    """The plain files below work/ and home/ with their sizes; no link is followed, and no cache looked at."""
    for top in FOLDERS:
        if (folder / top).is_symlink():
            continue
        for place, folders, names in os.walk(folder / top):
            folders[:] = sorted(name for name in folders if not name.startswith(".") and name != "__pycache__")
            for name in sorted(names):
                path = Path(place) / name
                if not path.is_symlink() and path.is_file():
                    yield path.relative_to(folder).as_posix(), path.lstat().st_size
