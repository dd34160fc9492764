"""When files of one name that two hosts write to are one file (they begin alike), and where they lie here if not.

Of a fetch, host/files/incoming.py decides it.

So `ranks/rank-0.jsonl` of a host that has rank 0 from now on is `hosts/<node>/ranks/rank-0.jsonl` here, where another
host had rank 0 before, or where the host has lost its disk.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from . import own_files

FOLDER = "hosts"
# Two files of one name are the same file if they begin alike: a line of ours begins with its time in milliseconds.
HEAD = 24


def name_of(node: str, name: str) -> str:
    """The place of a node's file that lies apart."""
    return f"{FOLDER}/{node}/{name}"


def folders(run_dir: Path) -> list[Path]:
    """The run folder, and each folder in it that has files of one host."""
    apart = []
    with suppress(OSError):
        if not (run_dir / FOLDER).is_symlink():
            apart = [path for path in (run_dir / FOLDER).iterdir() if path.is_dir() and not path.is_symlink()]
    return [run_dir, *sorted(path for path in apart if not path.name.startswith("."))]


def head(run_dir: Path, name: str) -> bytes:
    """How a file of the run folder begins; empty if it is missing, or no file of ours."""
    with suppress(OSError), own_files.open_to_read(run_dir, name) as file:
        return file.read(HEAD)
    return b""


def differ(begin: bytes, other: bytes) -> bool:
    """Whether two files are not the same one, as far as both have begun."""
    length = min(len(begin), len(other), HEAD)
    return begin[:length] != other[:length]


def time_in(begin: bytes) -> str:
    """The digits with which a file begins, by which a host knows its own file again (scripts/follow.sh)."""
    return re.sub(r"[^0-9]", "", begin[:HEAD].decode("ascii", "replace")) or "-"
