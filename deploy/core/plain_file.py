"""Read a file in a folder that somebody else may have made, without waiting for a pipe or following a link outside."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

from .text import amount

_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_plain(path: str | Path) -> int:
    """Open a plain file and return its descriptor. Raises OSError, also for a link, a folder, a pipe or a device."""
    descriptor = os.open(path, _FLAGS)
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return descriptor


def read(path: Path, most: int, within: Path | None = None) -> bytes:
    """The content of a plain file. `within`: a folder; only links that lead to a file in it are followed.

    Raises OSError, also for a file of more than `most` bytes.
    """
    if within is not None:
        path = inside(path, within)
    with os.fdopen(open_plain(path), "rb") as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {amount(most)}", str(path))
    return content


def inside(path: Path, within: Path) -> Path:
    """The path with its links resolved. Raises OSError if it is not below the folder `within`."""
    try:
        real = path.resolve(strict=True)
    except RuntimeError as fault:  # a link in a loop, before Python 3.13
        raise OSError(errno.ELOOP, "its links form a circle", str(path)) from fault
    if not real.is_relative_to(within.resolve()):
        raise OSError(errno.EXDEV, "a link leads outside the folder", str(path))
    return real
