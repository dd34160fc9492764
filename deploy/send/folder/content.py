"""What a path of a folder is when sent: file, folder, link; by what a file counts as unchanged (size, times, inode).

Of a path only its name, its content and its executable bit count. The text has a record for each path: `KIND SIZE
SHA256 PATH`. The kinds are f (file), x (executable file), l (link; the digest is that of its target) and d (folder,
without a digest). Its digest names the folder on a host. trainer/node/files/work.py makes the same from what it copies.
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

# Where a container has the user's folder; and the package `muster`, if its image lacks it.
WORKSPACE, CODE = "/workspace", "/muster/code"
TIME = 315532800  # 1980: zip files know no earlier year
_LISTED = {"f": "f 644", "x": "f 755", "l": "l a1ff"}
_NOTHING = "-"


@dataclass(slots=True)
class Entry:
    """A path of a folder. `stamp` tells whether it is still the same; `changed`: when. A folder may have very many."""

    path: str
    kind: int = stat.S_IFDIR
    size: int = 0
    # Scripts write into their own folder, and a run may use another user than the image names.
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
        """The entry's header in a tar file, under that name."""
        made = tarfile.TarInfo(name)
        made.size, made.mode, made.linkname, made.mtime = self.size, self.mode, self.linkname, TIME
        made.type = {stat.S_IFREG: tarfile.REGTYPE, stat.S_IFLNK: tarfile.SYMTYPE}.get(self.kind, tarfile.DIRTYPE)
        return made


def read_entry(top: Path | str, path: str) -> Entry | None:
    """A path of the folder `top`; None if no tar file can hold it, or it has just disappeared. Raises DeployError."""
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
    """All that is below a path of the folder `top`, whatever rules say; no link is followed. Raises DeployError."""

    def refuse(fault: OSError) -> None:
        if fault.filename == f"{top}/{path}" or not isinstance(fault, FileNotFoundError):  # it may go meanwhile
            raise unreadable(Path(fault.filename), fault) from fault

    for place, folders, files in os.walk(f"{top}/{path}", onerror=refuse):
        inside = place.removeprefix(f"{top}/")
        yield from (f"{inside}/{name}" if inside else name for name in (*folders, *files))


def stamp_of(status: os.stat_result) -> str:
    """What changes with a file: its size, times and inode, as rsync compares."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


@dataclass(frozen=True)
class HostFolder:
    """A folder that goes to a host: `place` there, `target` in the containers of a run, `digest` of its content.

    `lacking`: what the host lacks of it, in words; empty if it has all. `bytes`: of that.
    """

    place: str
    target: str
    digest: str
    lacking: str = ""
    bytes: int = 0

    @property
    def is_data(self) -> bool:
        """Whether it is data: it outlives what a push of code replaces."""
        return self.target not in (WORKSPACE, CODE)


@dataclass(frozen=True)
class Content:
    """The records of a folder, each with its path, in any order."""

    records: tuple[str, ...]

    @cached_property
    def digest(self) -> str:
        """What names this content everywhere."""
        return hashlib.sha256(self.text).hexdigest()

    @cached_property
    def text(self) -> bytes:
        """All records: for the digest, and to be remembered."""
        joined = "\0".join(sorted(self.records))
        # The order is that of the bytes: a name that is not text would be elsewhere in the order of texts.
        return joined.encode() if joined.isascii() else b"\0".join(sorted(map(os.fsencode, self.records)))

    @cached_property
    def listing(self) -> str:
        """The digest that a host's look at such a folder gives: names, sizes, times and rights, as rsync compares."""
        # A name may have several lines, and a host sorts lines.
        lines = [line for record in self.records for line in _listed(record).split("\n") if line]
        return hashlib.sha256(b"".join(line + b"\n" for line in sorted(map(os.fsencode, lines)))).hexdigest()

    def since(self, below: Content) -> tuple[set[str], set[str]]:
        """The paths that are new or differ from `below`, and the paths of `below` that must go for that."""
        ours, theirs = frozenset(self.records), frozenset(below.records)
        return {path_of(record) for record in ours - theirs}, {path_of(record) for record in theirs - ours}


def parse(text: bytes) -> Content:
    """The content that `text` stands for."""
    return Content(tuple(filter(None, os.fsdecode(text).split("\0"))))


def path_of(record: str) -> str:
    """The path of a record."""
    return record.split(" ", 3)[3]


def record_of(path: str, entry: Entry, digest: str) -> str:
    """The record of an entry. `digest`: of a file's bytes."""
    if entry.isdir():
        return f"d 0 {_NOTHING} {path}"
    if entry.issym():
        target = os.fsencode(entry.linkname)
        return f"l {len(target)} {hashlib.sha256(target).hexdigest()} {path}"
    return f"{'x' if entry.mode & 0o100 else 'f'} {entry.size} {digest} {path}"


def _listed(record: str) -> str:
    """The line of the script look-folders about a path; nothing for a folder, which needs none."""
    kind, size, _, path = record.split(" ", 3)
    if kind == "d":
        return ""
    return f"{_LISTED[kind]} {size} ./{path}" if kind == "l" else f"{_LISTED[kind]} {size} {TIME}.0000000000 ./{path}"
