"""What a user should know of the folder that is sent: what stays here, what is large, what is odd."""

from __future__ import annotations

from collections.abc import Iterable

from ..core.text import listed
from ..send.folder import left_out
from ..send.folder.folder_look import FolderLook, Look
from .console import Console

_SHOWN = 5


def tell(look: Look, console: Console) -> None:
    """Say what a look at a folder has found."""
    for note in look.notes:
        console.note(note)
    if look.credentials:
        console.note(left_out.describe(look.credentials))
        console.data({"kind": "not sent", "paths": [credential.path for credential in look.credentials]})


def tell_data(looks: Iterable[FolderLook], console: Console) -> None:
    """Say what of data is odd. Its credentials are sent: who names a folder of data means all of it."""
    for look in looks:
        where, seen = look.folder, look.result()
        for note in seen.notes:
            console.note(f"{where}: {note}")
        if names := [credential.path for credential in seen.credentials]:
            shown = listed(names, _SHOWN)
            console.warn(f"{where}: what looks like credentials is sent with this data: {shown}")
