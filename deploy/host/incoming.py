"""Merge the files that hosts sent into a run's folder here. Each host's part first arrives in a folder of its own.

No host can replace a file that this machine keeps there, nor a file of another host: if two hosts send different files
of the same name, we take the first host's, and put the others into `hosts/<host>/`.
"""

from __future__ import annotations

import errno
import filecmp
import os
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..core.names import file_name, node_of
from ..run.own_files import open_folder
from .unpack import LeftOut
from .unpack import Path as Parts

# The files that this machine keeps in a run folder; for nodes that it followed, also `logs/<node>.log`.
_OURS = {
    *("record.json", "outcome.json", "timeline.jsonl", "report.html", "preflight.json"),
    *(".lock", "hosts"),
}
_ASIDE = (".record.json.", ".outcome.json.", ".preflight.json.", ".report.", ".fetch-")


def ours(parts: Parts, nodes: Collection[str]) -> str:
    """Why a host's file of this name is not taken; empty if it is. Compares names as loosely as any file system."""
    first, last = _plain(parts[0]), _plain(parts[-1])
    if first in _OURS or first.startswith(_ASIDE):
        return "is kept by this machine"
    if len(parts) == 2 and first == "logs" and last in {_plain(f"{node}.log") for node in nodes}:
        return "is kept by this machine"
    return ""


@contextmanager
def stage(run_dir: Path, host: str) -> Iterator[Path]:
    """An empty folder for one host's part; it is removed at the end."""
    folder = run_dir / f".fetch-{os.getpid()}-{node_of(host)}"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(mode=0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class Merge:
    """Moves the hosts' parts into the run folder, one host after the other."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._taken: dict[tuple[str, ...], Path] = {}

    def take(self, host: str, staged: Path, left_out: LeftOut) -> int:
        """Move a host's part in. Returns how many of its files differ from another host's file of the same name."""
        apart, others = 0, dict(self._taken)
        root = os.open(self._run_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for parts, path in _files(staged):
                plain = tuple(_plain(part) for part in parts)
                if plain in others:
                    if filecmp.cmp(path, others[plain], shallow=False):
                        continue
                    apart += 1
                    goal = (file_name("hosts"), file_name(node_of(host)), *parts)
                else:
                    goal = parts
                    self._taken[plain] = self._run_dir.joinpath(*parts)
                try:
                    _move(path, root, goal)
                except OSError as fault:
                    left_out.add("/".join(parts), f"cannot be written here: {fault.strerror}")
        finally:
            os.close(root)
        return apart


def _move(path: Path, root: int, goal: Parts) -> None:
    """Rename a file to `goal`. Raises OSError if a link or a folder has that name."""
    folder = open_folder(root, goal[:-1], 0o700)
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(goal[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(errno.EEXIST, "a link has this name")
        os.replace(path, goal[-1], dst_dir_fd=folder)
    finally:
        os.close(folder)


def _files(staged: Path) -> Iterator[tuple[Parts, Path]]:
    for folder, folders, files in os.walk(staged):
        folders.sort()
        for name in sorted(files):
            path = Path(folder) / name
            yield tuple(file_name(part) for part in path.relative_to(staged).parts), path


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")
