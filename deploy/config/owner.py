"""Whose folder this is, as git's safe.directory sees it: what another user owns, that user may change at any moment."""

from __future__ import annotations

import os
import pwd
import re
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path


def stranger(folder: Path, *files: Path) -> str:
    """The name of another user who owns the folder, one of these files of it, or the git work tree around it; or ""."""
    ours = own_users()
    for path in (*files, *_tree(Path(os.path.realpath(folder)))):
        # A link and what it leads to: whoever owns either decides what is read.
        for facts in (os.lstat, os.stat):
            with suppress(OSError):
                if (number := facts(path).st_uid) not in ours:
                    return _name(number)
    return ""


def own_users() -> set[int]:
    """This user; for root also who called sudo, as git has it."""
    own, by_sudo = os.geteuid(), os.environ.get("SUDO_UID", "")
    return {own, int(by_sudo)} if own == 0 and re.fullmatch(r"[0-9]{1,9}", by_sudo) else {own}


def top_of(folder: Path) -> Path:
    """The top of the git work tree that a folder, by its real path, lies in; the folder itself outside of any."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), folder)


def _tree(folder: Path) -> Iterator[Path]:
    """The folder and those above it up to the work tree's top, and the .git there."""
    top = top_of(folder)
    yield from (above for above in (folder, *folder.parents) if above.is_relative_to(top))
    yield top / ".git"


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
