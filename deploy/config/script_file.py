"""The file that a script's command needs: whether the folder that is sent has it, and can run it."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path, PurePosixPath
from typing import NoReturn

from ..core import plain_file
from ..core.errors import UsageError
from ..core.near import near_file, near_path
from ..core.program import SCRIPT
from .script import PER_NODE

_SHELLS = ("bash", "sh", "dash", "zsh", "ksh")
# In a line that is not a comment; a backslash continues a line.
_ALONE = re.compile(
    r"^[^#\n]{0,999}?\b(?:torchrun|torch\.distributed\.run)\b(?:[^\n#]|\\\n){0,999}?--standalone\b", re.M
)
_MOST_SHELL = 1 << 17


def file_of(words: Sequence[str]) -> str:
    """The file that a read command needs in the folder; empty for a module, an option, or a program of the image."""
    if words[:1] == (PER_NODE,):
        is_shell = len(words) > 2 and words[1].rpartition("/")[2] in _SHELLS
        first = words[2] if is_shell else words[1]
        return first if first.endswith((".sh", ".py")) else ""
    return words[0] if words and not words[0].startswith("-") else ""


def refuse_alone(path: str, folder: Path) -> None:
    """Raise UsageError for a shell script whose torchrun would wait for the other nodes at an address of its own."""
    try:
        source = (
            plain_file.read(folder / path, _MOST_SHELL, folder).decode(errors="replace") if path.endswith(".sh") else ""
        )
    except OSError:
        return
    if _ALONE.search(source):
        why = "it meets no other node, and waits forever or trains alone"
        hint = f"take the option out of {path}: torchrun has the nodes, and where they meet, from the run's variables"
        raise UsageError(f"{path}: torchrun --standalone on several hosts: {why}", hint)


def refuse_no_folder(asked: str | Path) -> NoReturn:
    """Raise UsageError for a --folder that is none."""
    meant = near_path(str(asked), folder=True)
    hint = f"--folder {shlex.quote(meant)}" if meant else "leave out --folder: the folder that you are in is sent"
    raise UsageError(f"--folder {asked}: {'a file' if os.path.isfile(asked) else 'no such folder'}", hint)


def refuse_missing(path: str, folder: Path, hint: str = "give its path relative to --folder") -> NoReturn:
    """Raise UsageError for a script that is not in the folder."""
    meant = near_file(folder, path, PurePosixPath(path).suffix or ".py")
    if not meant and " " in path.strip():
        hint = (
            f"without the quotes: -- {path}"
            if SCRIPT == "--"
            else f"with one pair of quotes: {SCRIPT} {shlex.quote(path)}"
        )
    raise UsageError(f"{path}: no such file in {folder.resolve()}", f"did you mean {meant}?" if meant else hint)


def refuse_outside(path: str, folder: Path) -> None:
    """Raise UsageError for a script above or beside the folder: only the folder is sent."""
    whole = os.path.normpath(folder / path)
    if Path(os.path.relpath(whole, folder)).parts[0] == os.pardir:
        above = os.path.commonpath([os.path.abspath(whole), folder.resolve()])
        name = os.path.relpath(os.path.abspath(whole), above)
        hint = f"--folder {os.path.relpath(above)} sends the folder above, and there the script is {name}"
        raise UsageError(f"{path}: it lies outside of {folder.resolve()}, which is sent", hint)
