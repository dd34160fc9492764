"""The name that a user may have meant."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path, PurePosixPath


def near(typed: str, names: Iterable[str]) -> str:
    """The name most like what was typed; empty if none is."""
    return next(iter(difflib.get_close_matches(typed, sorted(names), 1, 0.7)), "")


def near_file(folder: Path, path: str, ending: str) -> str:
    """The file with this ending beside `path` in the folder that may be meant; empty if none is."""
    above = PurePosixPath(path).parent
    with suppress(OSError):
        names = [name for name in sorted(os.listdir(folder / above))[:1000] if name.endswith(ending)]
        return near(path, [(above / name).as_posix() for name in names])
    return ""
