"""Whose folder this is, as git's safe.directory sees it: what another user owns, that user may change at any moment."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def stranger(folder: Path, *files: Path) -> str:
    """The name of another user who owns the folder, one of these files of it, or the git work tree around it; or ""."""
    ours = {os.geteuid()}
    if os.geteuid() == 0 and os.environ.get("SUDO_UID", "").isdecimal():
        ours.add(int(os.environ["SUDO_UID"]))
    for path in (*files, *_tree(Path(os.path.realpath(folder)))):
        # A link and what it leads to: whoever owns either decides what is read.
        for facts in (os.lstat, os.stat):
            with suppress(OSError):
                if (number := facts(path).st_uid) not in ours:
                    return _name(number)
    return ""


def _tree(folder: Path) -> Iterator[Path]:
    """The folder and those above it up to the work tree's top, with its .git; the folder alone outside of any."""
    for above in (folder, *folder.parents):
        if os.path.lexists(above / ".git"):
            yield from (above / ".git", above)
            yield from (each for each in (folder, *folder.parents) if each.is_relative_to(above))
            return
    yield folder


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
