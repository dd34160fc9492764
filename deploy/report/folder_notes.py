"""What a user should know of the folder that is sent: what stays here, what is large, what is odd."""

from __future__ import annotations

from ..send.folder import left_out
from ..send.folder.folder_look import Look
from .console import Console


def tell(look: Look, console: Console) -> None:
    """Say what a look at a folder has found."""
    for note in look.notes:
        console.note(note)
    if look.credentials:
        console.note(left_out.describe(look.credentials))
        console.data({"kind": "not sent", "paths": [credential.path for credential in look.credentials]})
