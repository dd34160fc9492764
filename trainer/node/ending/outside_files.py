"""Finds files that a script in a container wrote outside its folder, its home and the kept paths.

Such a file is lost with the container, is among the downloads that all runs share, or is next to the script's folder.
Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..files import caches, replaceable

# Folders of the image and the kernel; and what Muster itself puts into a run's folder.
_SYSTEM = r"bin|boot|dev|etc|lib|lib32|lib64|proc|run|sbin|sys|usr"
_MUSTER_FILES = (
    r"\..*|work|home|keep|sent|torn|nodes|outcome|telemetry|scalars|logs|ranks|checkpoints|tensorboard|"
    r"(?:sent|copies|config|environment|record|outcome|preflight|code)\.json|"
    r"(?:metrics.*|timeline)\.jsonl|report\.html|code\.diff"
)
# The names of temporary files and folders of tempfile, torch, multiprocessing and Ray, which remove them themselves.
_TEMPORARY = re.compile(
    r"tmp[a-z0-9_]{8}|torchelastic_.*|torchinductor_.*|pymp-.*|session_[\d_-]{20,60}|ray_current_cluster"
)
# A download of torch.hub: its name contains the beginning of the content's digest.
_DIGEST = re.compile(r".*/hub/checkpoints/[^/]*-([0-9a-f]{8,64})\.\w+", re.DOTALL)
# At the end of a run, the search in each place may take this many seconds; then how many paths of each are listed.
_LOOK_S, _NAMED = 3.0, 3


@dataclass(frozen=True)
class OutsideFiles:
    """Files in one place: the paths of the largest, how many there are, and their bytes."""

    paths: list[str]
    files: int
    bytes: int


def find(
    since: float, run_folder: Path, root: Path = Path("/"), shared: Path = caches.FOLDER
) -> Iterator[OutsideFiles]:
    """Yield what was written after `since`: on the container's own disk, among the downloads, and next to `work/`."""
    places = {root: _SYSTEM, **({shared: ""} if shared.is_mount() else {}), run_folder: _MUSTER_FILES}
    for top, ours in places.items():
        new = [
            (status.st_size, str(path))
            for path, status in _files(top, re.compile(ours))
            if max(status.st_ctime, status.st_mtime) > since
            and not replaceable.kind_of(str(path.relative_to(top)), status.st_size)
            and not _is_of_torch_hub(path)
        ]
        if new:
            largest = [path for _, path in sorted(new, reverse=True)[:_NAMED]]
            yield OutsideFiles(largest, len(new), sum(size for size, _ in new))


def _files(top: Path, ours: re.Pattern[str]) -> Iterator[tuple[Path, os.stat_result]]:
    """The plain files of this process's user on the disk of `top`, except those below names that match `ours`."""
    disk, folders, until = top.stat().st_dev, [top], time.monotonic() + _LOOK_S
    of_python = {sys.prefix, sys.base_prefix}
    while folders and time.monotonic() < until:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        for entry in entries:
            if _TEMPORARY.fullmatch(entry.name) or (folder == top and ours.fullmatch(entry.name)):
                continue
            if entry.path in of_python:
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if entry.is_dir(follow_symlinks=False):
                folders += [folder / entry.name] if status.st_dev == disk else []
            elif entry.is_file(follow_symlinks=False) and status.st_uid == os.getuid():
                yield folder / entry.name, status


def _is_of_torch_hub(path: Path) -> bool:
    """Whether torch.hub has downloaded this file: it belongs to a repository, or its name has its content's digest."""
    match = _DIGEST.fullmatch(str(path))
    if match is None:
        return path.name == "trusted_list" or any((above / "hubconf.py").exists() for above in path.parents)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().startswith(match[1])
    except OSError:
        return False
