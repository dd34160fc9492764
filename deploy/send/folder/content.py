"""What Muster sends for a path of a folder (file, folder or link), and how it tells that a file is unchanged.

Only a path's name, content and executable bit count. The text of a folder has one record for each path: `KIND SIZE
SHA256 PATH`. The kinds are f (file), x (executable file), l (link; the digest is that of its target) and d (folder,
without a digest). The digest of this text names the folder on a host. trainer/node/files/work.py writes the same
records for what it copies.
"""

from __future__ import annotations

import hashlib
import os
import stat
import tarfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...core.errors import DeployError

# Where a container has the user's folder; and where it has the package `muster`, if its image lacks that package.
WORKSPACE, CODE = "/workspace", "/muster/code"
TIME = 315532800  # 1980: zip files cannot store an earlier year
_LISTED = {"f": "f 644", "x": "f 755", "l": "l a1ff"}
_NOTHING = "-"


@dataclass(slots=True)
class Entry:
    """A path of a folder. `stamp`: changes if the path does. `changed`: the ctime. A folder may have very many."""

    path: str
    kind: int = stat.S_IFDIR
    size: int = 0
    # Scripts write into their own folder, and a run may use a different user from the one that the image names.
    mode: int = 0o777
    linkname: str = ""
    stamp: str = ""
    changed: float = 0.0

    def isdir(self) -> bool:
        """Whether it is a folder."""
        return self.kind == stat.S_IFDIR

    def isreg(self) -> bool:
        """Whether it is a plain file."""
        return self.kind == stat.S_IFREG

    def issym(self) -> bool:
        """Whether it is a link."""
        return self.kind == stat.S_IFLNK

    def header(self, name: str) -> tarfile.TarInfo:
        """The entry's header in a tar file, under the name `name`."""
        made = tarfile.TarInfo(name)
        made.size, made.mode, made.linkname, made.mtime = self.size, self.mode, self.linkname, TIME
        made.type = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE}.get(self.kind, tarfile.DIRTYPE)
        return made


def read_entry(top: Path | str, path: str) -> Entry | None:
    """Read a path of the folder `top`; None if no tar file can hold it or it just disappeared. Raises DeployError."""
    try:
        status = os.lstat(f"{top}/{path}")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as fault:
        raise unreadable(Path(top, path), fault) from fault
    kind = stat.S_IFMT(status.st_mode)
    if kind == stat.S_IFREG:
        mode = 0o755 if status.st_mode & 0o111 else 0o644
        return Entry(path, kind, status.st_size, mode, "", f"{mode} {stamp_of(status)} ", status.st_ctime)
    entry = Entry(path, kind, changed=status.st_ctime)
    if kind == stat.S_IFLNK:
        entry.linkname = os.readlink(f"{top}/{path}")
    elif kind != stat.S_IFDIR:
        return None
    entry.stamp = f"{entry.mode} {stamp_of(status)} {entry.linkname}"
    return entry


def unreadable(path: Path, fault: OSError) -> DeployError:
    """The error for a path of the folder."""
    why = fault.strerror or "it became shorter while Muster read it"
    return DeployError(f"cannot read {path}: {why}", "make it readable, or exclude it from what is sent")


def paths_below(top: Path, path: str = "") -> Iterator[str]:
    """All paths below a path of the folder `top`, regardless of ignore rules; follows no link. Raises DeployError."""

    def refuse(fault: OSError) -> None:
        if fault.filename == f"{top}/{path}" or not isinstance(fault, FileNotFoundError):  # a file may vanish
            raise unreadable(Path(fault.filename), fault) from fault

    for place, folders, files in os.walk(f"{top}/{path}", onerror=refuse):
        inside = place.removeprefix(f"{top}/")
        yield from (f"{inside}/{name}" if inside else name for name in (*folders, *files))


def stamp_of(status: os.stat_result) -> str:
    """A text that changes when the file changes: its size, times and inode, which are what rsync compares."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


@dataclass(frozen=True)
class HostFolder:
    """A folder on a host: stored at `place`, mounted at `target` in containers, named by its content's `digest`.

    `lacking`: what the host still lacks, in words; empty if it has everything. `bytes`: how many bytes it lacks.
    """

    place: str
    target: str
    digest: str
    lacking: str = ""
    bytes: int = 0

    @property
    def is_data(self) -> bool:
        """Whether it holds data: a push of code deletes the code it replaces, but keeps data."""
        return self.target not in (WORKSPACE, CODE)


@dataclass(frozen=True)
class Content:
    """The records of a folder's paths, in any order."""

    records: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """The digest that identifies this content everywhere."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def text(self) -> bytes:
        """All records in one text: for the digest, and to be saved."""
        joined = "\0".join(sorted(self.records))
        # Sort by bytes: a name that is not valid text would be at another place if the records were sorted as text.
        return joined.encode() if joined.isascii() else b"\0".join(sorted(map(os.fsencode, self.records)))

    @cached_property
    def listing(self) -> str:
        """The digest that a host computes from the folder's names, sizes, times and permissions, as rsync compares."""
        # A file name may contain line breaks, and the host sorts single lines.
        lines = [line for record in self.records for line in _listed(record).split("\n") if line]
        return hashlib.sha256(b"".join(line + b"\n" for line in sorted(map(os.fsencode, lines)))).hexdigest()

    def since(self, below: Content) -> tuple[set[str], set[str]]:
        """The paths that are new or differ from those of `below`, and the paths of `below` to remove first."""
        ours, theirs = frozenset(self.records), frozenset(below.records)
        return {path_of(record) for record in ours - theirs}, {path_of(record) for record in theirs - ours}


def parse(text: bytes) -> Content:
    """Parse the text of a folder's records."""
    return Content(tuple(filter(None, os.fsdecode(text).split("\0"))))


def path_of(record: str) -> str:
    """The path of a record."""
    return record.split(" ", 3)[3]


def record_of(path: str, entry: Entry, digest: str) -> str:
    """The record of an entry. `digest`: the digest of a file's bytes."""
    if entry.isdir():
        return f"d 0 {_NOTHING} {path}"
    if entry.issym():
        target = os.fsencode(entry.linkname)
        return f"l {len(target)} {hashlib.sha256(target).hexdigest()} {path}"
    return f"{'x' if entry.mode & 0o100 else 'f'} {entry.size} {digest} {path}"


def _listed(record: str) -> str:
    """The line that the script look-folders prints for a path; empty for a folder, which has no line."""
    kind, size, _, path = record.split(" ", 3)
    if kind == "d":
        return ""
    return f"{_LISTED[kind]} {size} ./{path}" if kind == "l" else f"{_LISTED[kind]} {size} {TIME}.0000000000 ./{path}"
