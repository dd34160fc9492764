"""Decide whether two hosts' files of one name are one file (they begin alike), and where they are kept here if not.

For a fetch, host/files/incoming.py decides it.

For example, a host gets rank 0, and another host had rank 0 before, or the host has lost its disk. Then this machine
keeps the host's `ranks/rank-0.jsonl` as `hosts/<node>/ranks/rank-0.jsonl`.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

from . import own_files

FOLDER = "hosts"
# Two files of one name are the same file if this many bytes are equal: Muster's lines begin with their time in
# milliseconds.
HEAD = 24


def name_of(node: str, name: str) -> str:
    """The path, in the run folder, of a node's file that is kept apart."""
    return f"{FOLDER}/{node}/{name}"


def folders(run_dir: Path) -> list[Path]:
    """The run folder, and each folder in it that keeps the files of one host apart."""
    apart = []
    with suppress(OSError):
        if not (run_dir / FOLDER).is_symlink():
            apart = [path for path in (run_dir / FOLDER).iterdir() if path.is_dir() and not path.is_symlink()]
    return [run_dir, *sorted(path for path in apart if not path.name.startswith("."))]


def head(run_dir: Path, name: str) -> bytes:
    """How a file of the run folder begins; empty if it is missing, a link, or not a regular file."""
    with suppress(OSError), own_files.open_to_read(run_dir, name) as file:
        return file.read(HEAD)
    return b""


def differ(begin: bytes, other: bytes) -> bool:
    """Whether two files differ, by the bytes that both have so far."""
    length = min(len(begin), len(other), HEAD)
    return begin[:length] != other[:length]


def time_in(begin: bytes) -> str:
    """The digits at the beginning of a file, by which a host recognises its own file (scripts/follow.sh)."""
    return re.sub(r"[^0-9]", "", begin[:HEAD].decode("ascii", "replace")) or "-"
