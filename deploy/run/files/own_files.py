"""Read and write files in a run folder without following links: containers and hosts write there as well.

A link planted there could make Muster write to, or show, any file of its user; a pipe would block it. So this module
opens each file folder by folder. It replaces a link in the place of a file that it writes; a link in the place of a
folder is an error.
"""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ...core import plain_file
from ...core.errors import DeployError

# The most bytes of a file that is read as a whole.
MOST = 64 << 20
_BLOCK, _LOOK = 256 << 10, 4 << 10
_SAFE_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_folder(root: int, names: Sequence[str], mode: int = 0o777) -> int:
    """Open the folder below `root`; make it if it is missing. Raises OSError if a link or a file is in its place."""
    folder = os.dup(root)
    for name in names:
        above = folder
        try:
            with suppress(FileExistsError):
                os.mkdir(name, mode, dir_fd=above)
            folder = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
        finally:
            os.close(above)
    return folder


def write(run_dir: Path, name: str, data: bytes) -> None:
    """Replace a whole file in the run folder; `name` is a path like `logs/a.log`."""
    with _folder(run_dir, name) as (folder, last):
        aside = f".{last}.{os.getpid()}.{secrets.token_hex(4)}"
        try:
            with os.fdopen(_opened(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, folder), "wb") as file:
                file.write(data)
            os.replace(aside, last, src_dir_fd=folder, dst_dir_fd=folder)
        except OSError:
            with suppress(OSError):
                os.unlink(aside, dir_fd=folder)
            raise


def open_to_append(run_dir: Path, name: str, empty: bool = False) -> BinaryIO:
    """Open a file in the run folder, unbuffered, at its end; `empty`: truncate it first."""
    with _folder(run_dir, name) as (folder, last):
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | (os.O_TRUNC if empty else 0)
        try:
            descriptor = _opened(last, flags, folder)
        except OSError as fault:
            if fault.errno not in (errno.ELOOP, errno.EINVAL, errno.ENXIO):
                raise
            os.unlink(last, dir_fd=folder)  # a link or a pipe is in the place of Muster's file
            descriptor = _opened(last, flags, folder)
        return os.fdopen(descriptor, "ab", buffering=0)


def clear(run_dir: Path, folder: str, ending: str = "") -> None:
    """Make a folder in the run folder. If an ending is given, remove the files in it whose names end with it."""
    with _folder(run_dir, f"{folder}/") as (opened, _):
        for name in os.listdir(opened) if ending else ():
            if name.endswith(ending):
                os.unlink(name, dir_fd=opened)


def replace_folder(run_dir: Path, name: str, source: Path) -> None:
    """Move the folder `source`, on the same disk, to `name` in the run folder, and replace whatever is there."""
    with _folder(run_dir, name) as (folder, last):
        try:
            os.unlink(last, dir_fd=folder)
        except FileNotFoundError:
            pass
        except (IsADirectoryError, PermissionError):  # Linux raises the first, POSIX and macOS the second
            shutil.rmtree(last, dir_fd=folder)
        os.rename(source, last, dst_dir_fd=folder)


def read(path: Path, most: int = MOST) -> bytes:
    """Read a whole regular file. Raises OSError for a link, a pipe, or a file of more than `most` bytes."""
    return plain_file.read(path, most)


def read_end(run_dir: Path, name: str, most: int) -> tuple[bytes, int]:
    """The last `most` bytes of a file in the run folder, and how many come before. Raises as `open_to_read` does."""
    with open_to_read(run_dir, name) as file:
        start = file.seek(max(0, os.fstat(file.fileno()).st_size - most))
        return file.read(most), start


def read_at(run_dir: Path, name: str, place: int, size: int) -> bytes:
    """The `size` bytes of a file from `place` on. Raises as `open_to_read` does."""
    with open_to_read(run_dir, name) as file:
        return os.pread(file.fileno(), size, place)


def blocks(run_dir: Path, name: str, most: int, start: int = 0) -> Iterator[bytes]:
    """Yield a file from `start` on, in pieces that end with a whole line. Raises as `open_to_read` does.

    A piece has _BLOCK bytes, and at most `most` bytes more to the end of its last line: a longer line is cut.
    """
    with open_to_read(run_dir, name) as file:
        file.seek(start)
        while piece := file.read(_BLOCK):
            yield piece if piece.endswith(b"\n") else piece + file.readline(most)


def sample(run_dir: Path, name: str, number: int, most: int, start: int = 0) -> Iterator[bytes]:
    """Yield about `number` lines of a long file from `start` on, at even distances, and the last one; read no others.

    A line of more than `most` bytes comes out empty. Raises as `open_to_read` does.
    """
    with open_to_read(run_dir, name) as file:
        size, after = os.fstat(file.fileno()).st_size, 0
        for place in [start + (size - start) * part // number for part in range(number)]:
            if place >= after:
                line, after = _line_at(file.fileno(), place, most)
                yield line
        end = max(after, size - most)
        yield os.pread(file.fileno(), most, end).rpartition(b"\n")[0].rpartition(b"\n")[2]


def _line_at(descriptor: int, place: int, most: int) -> tuple[bytes, int]:
    """The first line that begins at or after a place, and the place where the next line begins."""
    at, width = max(0, place - 1), _LOOK
    while True:
        piece = os.pread(descriptor, width, at)
        begin = piece.find(b"\n") + 1 if place else 0
        end = piece.find(b"\n", begin) if begin or not place else -1
        if end >= 0:
            return piece[begin:end], at + end + 1
        if len(piece) < width or width > most:
            return b"", at + len(piece)
        width *= 8


def open_to_read(run_dir: Path, name: str) -> BinaryIO:
    """Open a regular file in the run folder at its beginning; `name` is a path like `logs/a.log`.

    Raises OSError if the file, or a folder on the way to it, is a link.
    """
    *folders, last = name.split("/")
    folder = os.open(run_dir, os.O_RDONLY | os.O_DIRECTORY)
    try:
        for part in folders:
            above = folder
            folder = os.open(part, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=above)
            os.close(above)
        return os.fdopen(_opened(last, os.O_RDONLY, folder), "rb")
    finally:
        os.close(folder)


def _opened(name: str, flags: int, folder: int) -> int:
    descriptor = os.open(name, flags | _SAFE_FLAGS, 0o666, dir_fd=folder)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", name)
    return descriptor


@contextmanager
def _folder(run_dir: Path, name: str) -> Iterator[tuple[int, str]]:
    *folders, last = name.split("/")
    root = os.open(run_dir.parent, os.O_RDONLY | os.O_DIRECTORY)
    try:
        folder = open_folder(root, (run_dir.name, *folders))
    except NotADirectoryError as fault:  # with O_NOFOLLOW the kernel reports ENOTDIR for a link as well
        what = f"{run_dir}: {fault.filename} in it is a link or a file instead of a folder"
        raise DeployError(what, f"look at it: ls -l {run_dir}") from fault
    finally:
        os.close(root)
    try:
        yield folder, last
    finally:
        os.close(folder)
