"""What a script in a container wrote where nothing is kept: it goes with the container, or lies among downloads.

Standard library only.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from . import caches, replaceable

# Of the image and the kernel: a user of a container writes no results there.
_SYSTEM = frozenset(["bin", "boot", "dev", "etc", "lib", "lib32", "lib64", "proc", "run", "sbin", "sys", "usr"])
# What tempfile, torch and multiprocessing call what they throw away themselves.
_PASSING = re.compile(r"tmp[a-z0-9_]{8}|torchelastic_.*|torchinductor_.*|pymp-.*")
# Of torch.hub: the name has the beginning of the content's digest.
_DIGEST = re.compile(r".*-([0-9a-f]{8,64})\.\w+")
_MOST_ENTRIES, _NAMED = 200_000, 3


@dataclass
class Outside:
    """Files outside what is kept: how many, their bytes, and the paths of the largest ones."""

    count: int = 0
    bytes: int = 0
    paths: list[str] = field(default_factory=list)


def look(since: float, root: Path = Path("/"), shared: Path = caches.FOLDER) -> Outside:
    """Find what has been written since then on the container's own disk, and among the downloads of all runs."""
    new = []
    for top in (root, *([shared] if os.path.ismount(shared) else [])):
        for path, status in _files(top):
            inside, written = str(path.relative_to(top)), max(status.st_ctime, status.st_mtime)
            if written > since and not replaceable.kind_of(inside, status.st_size) and not _is_of_torch_hub(path):
                new.append((status.st_size, str(path)))
    largest = [path for _, path in sorted(new, reverse=True)[:_NAMED]]
    return Outside(len(new), sum(size for size, _ in new), largest)


def _files(top: Path) -> Iterator[tuple[Path, os.stat_result]]:
    """The plain files on the disk of `top`, as far as a user of the container may write them."""
    disk, folders, seen = top.stat().st_dev, [top], 0
    while folders and seen < _MOST_ENTRIES:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError:
            continue
        seen += len(entries)
        for entry in entries:
            if _PASSING.fullmatch(entry.name) or (folder.parent == folder and entry.name in _SYSTEM):
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
    """Whether it is a file of a repository that torch.hub has unpacked, or holds what its name says."""
    match = _DIGEST.fullmatch(path.name)
    if match is None:
        return path.name == "trusted_list" or any((above / "hubconf.py").exists() for above in path.parents)
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest().startswith(match[1])
    except OSError:
        return False
