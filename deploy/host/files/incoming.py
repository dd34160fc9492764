"""Which files of hosts are here already, and where `muster fetch` puts a new file and others with the same name.

Each host's files first arrive in a separate folder.

No host can replace a file that this machine keeps there, or another host's file: if two hosts send different files
with the same name, the first one keeps the name, and the others go into `hosts/<host>/`. `.fetched.json` records which
file came from which host, so that the next fetch continues an interrupted one.
"""

from __future__ import annotations

import errno
import filecmp
import json
import os
import shutil
import stat
import unicodedata
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path

from ...core.errors import DeployError
from ...core.names import file_name, node_of
from ...run.files import host_copies, locks, own_files
from ...run.files.own_files import open_folder
from .folder_copy import allowed_path
from .listing import Stamp
from .unpack import LeftOut
from .unpack import Path as Parts

# Files in a run folder that this machine writes itself. For nodes that it followed, it also writes `logs/<node>.log`.
_KEPT_HERE = {
    *("record.json", "outcome.json", "timeline.jsonl", "report.html", "preflight.json", "code.json", "code.diff"),
    *(".lock", "hosts", ".fetched.json"),
}
_TEMPORARY = (".record.json.", ".outcome.json.", ".preflight.json.", ".report.", ".fetch-")


def why_refused(parts: Parts, nodes: Collection[str]) -> str:
    """Why Muster refuses a host's file with this name; empty if it does not. Compares names as loosely as any disk."""
    first, last = _plain(parts[0]), _plain(parts[-1])
    if first in _KEPT_HERE or first.startswith(_TEMPORARY):
        return "is kept by this machine"
    if len(parts) == 2 and first == "logs" and last in {_plain(f"{node}.log") for node in nodes}:
        return "is kept by this machine"
    return ""


@contextmanager
def lock_fetch(run_dir: Path) -> Iterator[None]:
    """Keep other fetches of the run out until the end of the `with`. Raises DeployError if one is running."""
    lock = locks.hold(run_dir / ".fetch-lock")
    if lock is None:
        raise DeployError(f"{run_dir.name}: another fetch of this run is running", "wait until it ends")
    try:
        yield
    finally:
        lock.release()


def stage(run_dir: Path, host: str) -> Path:
    """The folder for one host's files. It still has what an interrupted fetch left there."""
    folder = run_dir / f".fetch-{node_of(host)}"
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
    if folder.is_symlink() or not folder.is_dir():
        raise DeployError(f"{folder}: it is not a folder", f"look at it: ls -ld {folder}")
    return folder


def unstage(staged: Path) -> None:
    """Remove a host's folder after its merge."""
    shutil.rmtree(staged, ignore_errors=True)


def keep_whole(staged: Path, wanted: Mapping[str, Stamp]) -> dict[str, Stamp]:
    """The wanted files that an interrupted fetch completed; removes all other files in the folder."""
    whole = {}
    for parts, path in _files(staged):
        name = "/".join(parts)
        if name in wanted and _stamp(path) == wanted[name]:
            whole[name] = wanted[name]
        else:
            path.unlink()
    return whole


def staged_files(staged: Path) -> frozenset[str]:
    """The paths of the files in a host's folder."""
    return frozenset("/".join(parts) for parts, _ in _files(staged))


class Fetched:
    """Which file came from which host, with its stamp there: `.fetched.json` in the run folder."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir, self._name = run_dir, ".fetched.json"
        self.hosts: dict[str, dict[str, Stamp]] = {}
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
            known = json.loads(own_files.read(run_dir / self._name))
            for node, rows in known.items():
                self.hosts[node] = {path: Stamp(*row) for path, row in rows.items()}

    def has_arrived(self, host: str, path: str, stamp: Stamp) -> bool:
        """Whether the host's file has arrived, and still exists here with the same size."""
        node = node_of(host)
        if self.hosts.get(node, {}).get(path) != stamp:
            return False
        here = _stamp(f"{self._run_dir}/hosts/{node}/{path}") or _stamp(f"{self._run_dir}/{path}")
        return here is not None and here.size == stamp.size

    def add(self, host: str, files: Mapping[str, Stamp]) -> None:
        """Record the files of a host."""
        self.hosts[node_of(host)] = {**self.hosts.get(node_of(host), {}), **files}

    def write(self) -> None:
        """Write the record into the run folder."""
        rows = {
            node: {path: [stamp.size, stamp.time] for path, stamp in files.items()}
            for node, files in self.hosts.items()
        }
        own_files.write(self._run_dir, self._name, json.dumps(rows).encode())


class Merge:
    """Moves the hosts' files into the run folder, one host after the other. `fetched`: files from earlier fetches."""

    def __init__(self, run_dir: Path, fetched: Fetched) -> None:
        self._run_dir = run_dir
        # For each path: the node whose file is stored there.
        self._owners: dict[tuple[str, ...], str] = {}
        for node, files in fetched.hosts.items():
            apart = f"{run_dir}/hosts/{node}"  # a path object for each of a million files would take minutes
            for path in files:
                if not os.path.lexists(f"{apart}/{path}") and os.path.lexists(f"{run_dir}/{path}"):
                    self._owners.setdefault(tuple(map(_plain, path.split("/"))), node)
        self._paths: dict[tuple[str, ...], Path] = {}

    def take(self, host: str, staged: Path, left_out: LeftOut) -> int:
        """Move a host's files. Returns how many differ from another host's file of the same name."""
        apart, node, owners = 0, node_of(host), dict(self._owners)
        root = os.open(self._run_dir, os.O_RDONLY | os.O_DIRECTORY)
        try:
            for parts, path in _files(staged):
                plain = tuple(_plain(part) for part in parts)
                if owners.get(plain, node) != node or (plain not in owners and self._is_anothers(node, parts, path)):
                    if _same(path, self._paths.get(plain, self._run_dir.joinpath(*parts))):
                        continue
                    apart += 1
                    goal = (file_name("hosts"), file_name(node), *parts)
                else:
                    goal = parts
                    self._owners[plain], self._paths[plain] = node, self._run_dir.joinpath(*parts)
                try:
                    _move(path, root, goal)
                except OSError as fault:
                    left_out.add("/".join(parts), f"cannot be written here: {fault.strerror}")
        finally:
            os.close(root)
        return apart

    def _is_anothers(self, node: str, parts: Parts, path: Path) -> bool:
        """Whether the growing file here with this name is another host's, copied by a follower (hosts/mirror.py)."""
        name = "/".join(parts)
        if allowed_path(name) is None or not name.endswith(".jsonl"):
            return False
        if os.path.lexists(self._run_dir / host_copies.name_of(node, name)):
            return True
        return host_copies.differ(host_copies.head(self._run_dir, name), host_copies.head(path.parent, path.name))


def _move(path: Path, root: int, goal: Parts) -> None:
    """Rename a file to `goal`. Raises OSError if a link or a folder has that name."""
    folder = open_folder(root, goal[:-1], 0o700)
    try:
        with suppress(FileNotFoundError):
            if stat.S_ISLNK(os.stat(goal[-1], dir_fd=folder, follow_symlinks=False).st_mode):
                raise OSError(errno.EEXIST, "this name is a link")
        os.replace(path, goal[-1], dst_dir_fd=folder)
    finally:
        os.close(folder)


def _same(path: Path, other: Path) -> bool:
    with suppress(OSError):
        return filecmp.cmp(path, other, shallow=False)
    return False


def _stamp(path: Path | str) -> Stamp | None:
    """The stamp of a regular file; None for anything else."""
    with suppress(OSError):
        status = os.lstat(path)
        return Stamp(status.st_size, int(status.st_mtime)) if stat.S_ISREG(status.st_mode) else None
    return None


def _files(staged: Path) -> Iterator[tuple[Parts, Path]]:
    for folder, folders, files in os.walk(staged):
        folders.sort()
        for name in sorted(files):
            path = Path(folder) / name
            yield tuple(file_name(part) for part in path.relative_to(staged).parts), path


def _plain(name: str) -> str:
    return unicodedata.normalize("NFKC", name).casefold().rstrip(". ")
