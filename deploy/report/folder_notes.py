"""Prints what send/folder/ decided of the folder and data that are sent: what stays, is large, odd or a secret."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from ..core.text import listed
from ..send.folder import left_out, selection
from ..send.folder.folder_look import FolderLook, Look
from .console import Console

_SHOWN = 5


def tell_sent(code: FolderLook, console: Console, words: Iterable[str] = (), targets: Iterable[str] = ()) -> None:
    """Say what is found in a folder that goes to hosts, where a link to the rest of its repository leads nowhere, and
    one to a disk too, if the script's `words` name it and none of `targets` brings it."""
    look = code.result()
    links = [entry.path for entry in look.entries if entry.issym() and not entry.linkname.startswith("/")]
    named = (word.rpartition("=")[2] for word in words)
    links += [path for path in named if not path.startswith("/") and not _is_below(code.folder / path, targets)]
    hints = [selection.beyond_link(code.folder, path) for path in links if os.path.exists(code.folder / path)]
    tell(replace(look, notes=(*look.notes, *list(filter(None, hints))[:1])), console)


def _is_below(path: Path, targets: Iterable[str]) -> bool:
    """Whether the path is in one of these places, its links followed."""
    return any(Path(os.path.realpath(path)).is_relative_to(target) for target in targets)


def tell(look: Look, console: Console) -> None:
    """Say what a look at a folder has found."""
    for note in look.notes:
        console.note(note)
    # Nobody misses a repository: where git says what is sent, it stays without a word.
    if staying := [credential for credential in look.credentials if Path(credential.path).name != ".git"]:
        console.note(left_out.describe(staying))
        console.data({"kind": "not sent", "paths": [credential.path for credential in staying]})


def tell_data(looks: Iterable[FolderLook], console: Console) -> None:
    """Say what of data is odd. Its credentials are sent: who names a folder of data means all of it."""
    for look in looks:
        where, seen = look.folder, look.result()
        for note in seen.notes:
            console.note(f"{where}: {note}")
        if names := [credential.path for credential in seen.credentials]:
            shown = listed(names, _SHOWN)
            console.warn(f"{where}: files that look like credentials are sent with this data: {shown}")
