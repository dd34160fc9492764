"""One path of a folder as an entry of a layer: only its name, its content and its executable bit count."""

from __future__ import annotations

import os
import stat
import tarfile
from pathlib import Path

from .model import WORKSPACE

_OWNER = 1000  # the user of Muster's own image
TIME = 315532800  # 1980: zip files know no earlier year


class Entry(tarfile.TarInfo):
    """A path as an entry of a layer. `stamp` tells whether it is still the same; `changed`: when."""

    stamp = ""
    changed = 0.0


def read(top: Path, path: str) -> Entry | None:
    """A path as an entry of the layer, without content; None if a layer cannot hold it, or it has just disappeared."""
    try:
        status = os.lstat(f"{top}/{path}")  # not `top / path`: a folder may have very many
    except FileNotFoundError:
        return None
    entry = folder(f"{WORKSPACE}/{path}")
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(f"{top}/{path}"), 0o777
    elif stat.S_ISREG(status.st_mode):
        entry.type, entry.size = tarfile.REGTYPE, status.st_size
        entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
    elif not stat.S_ISDIR(status.st_mode):
        return None
    entry.changed = status.st_ctime
    entry.stamp = f"{entry.mode} {stamp_of(status)} {entry.linkname}"
    return entry


def stamp_of(status: os.stat_result) -> str:
    """What changes with a file: its size, times and inode, as rsync compares."""
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def folder(name: str = WORKSPACE) -> Entry:
    """An entry for a folder."""
    entry = Entry(name.removeprefix("/"))
    entry.type, entry.mtime, entry.uid, entry.gid = tarfile.DIRTYPE, TIME, _OWNER, _OWNER
    # Scripts write into their own folder, and a run may use another user than the image names.
    entry.mode = 0o777
    return entry


def within(entry: tarfile.TarInfo) -> str:
    """The path of an entry in the folder."""
    return entry.name.removeprefix(WORKSPACE[1:] + "/")
