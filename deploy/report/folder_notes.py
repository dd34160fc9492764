"""Print what send/folder/ decided about a folder and data to send: what is left out, large, odd or secret."""

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
    """Print what a look found in a folder that is sent to hosts, and a hint about a link that leads nowhere there.

    Such a link leads to the rest of the folder's repository; or to a disk, if the script's `words` have the link and
    none of the `targets`, which the hosts get, contains the place.
    """
    look = code.result()
    links = [entry.path for entry in look.entries if entry.issym() and not entry.linkname.startswith("/")]
    named = (word.rpartition("=")[2] for word in words)
    links += [path for path in named if not path.startswith("/") and not _is_below(code.folder / path, targets)]
    hints = [selection.beyond_link(code.folder, path) for path in links if os.path.exists(code.folder / path)]
    tell(replace(look, notes=(*look.notes, *list(filter(None, hints))[:1])), console)


def _is_below(path: Path, targets: Iterable[str]) -> bool:
    """Whether the path, with its links followed, is in one of these places."""
    return any(Path(os.path.realpath(path)).is_relative_to(target) for target in targets)


def tell(look: Look, console: Console) -> None:
    """Print what a look at a folder found."""
    for note in look.notes:
        console.note(note)
    # Nobody misses a repository on the hosts: if git decides what is sent, .git is left out without a note.
    if staying := [credential for credential in look.credentials if Path(credential.path).name != ".git"]:
        console.note(left_out.describe(staying))
        console.data({"kind": "not sent", "paths": [credential.path for credential in staying]})


def tell_data(looks: Iterable[FolderLook], console: Console) -> None:
    """Print what is odd about data folders. Credentials in them are sent: the user asked for the whole folder."""
    for look in looks:
        where, seen = look.folder, look.result()
        for note in seen.notes:
            console.note(f"{where}: {note}")
        if names := [credential.path for credential in seen.credentials]:
            shown = listed(names, _SHOWN)
            console.warn(f"{where}: files that look like credentials are sent with this data: {shown}")
