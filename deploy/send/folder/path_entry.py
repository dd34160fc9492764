"""One path of a folder as it is sent: only its name, its content and its executable bit count."""

from __future__ import annotations

import os
import stat
import tarfile
from dataclasses import dataclass
from pathlib import Path

TIME = 315532800  # 1980: zip files know no earlier year


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


def read(top: Path | str, path: str) -> Entry | None:
    """A path of the folder `top`; None if no tar file can hold it, or it has just disappeared."""
    try:
        status = os.lstat(f"{top}/{path}")
    except FileNotFoundError:
        return None
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


def stamp_of(status: os.stat_result) -> str:
    """What changes with a file: its size, times and inode, as rsync compares."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"
