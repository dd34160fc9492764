"""The indexes that a requirements file names, and the passwords in its addresses.

An index goes with the user's own settings, which hosts get on their input: they install from where was resolved. A file
with a password stays on this machine (send/folder/credentials.py); a git source is fetched here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ...core.errors import UsageError
from ..folder import credentials
from .requirement_lines import lines
from .requirements import Requirements
from .settings import Settings, without_logins

_INDEX = re.compile(r"(--index-url|-i|--extra-index-url|--find-links|-f)(?:\s+|=)(\S+)")
_VARIABLES = {"--index-url": "UV_DEFAULT_INDEX", "-i": "UV_DEFAULT_INDEX", "--extra-index-url": "UV_INDEX"}
_LOGIN = re.compile(r"(https?://)[^/@\s]+@")


def take_out(needs: Requirements, own: Settings) -> tuple[Requirements, Settings]:
    """The requirements without indexes and passwords, and the settings with these indexes.

    Raises UsageError for another address with a password, with file and line.
    """
    paths = {path for path, content in needs.files if credentials.kind_of(path, content) == credentials.IN_AN_ADDRESS}
    variables, files = dict(own.variables), list[tuple[str, bytes]]()
    for path, content in needs.files:
        for source in needs.git:  # also of a mere user's name: the fetched source is named without it
            content = content.replace(source.encode(), plain(source).encode())
        files.append((path, _without(path, content, variables) if path in paths or _may_name(path) else content))
    if not _may_name(needs.path):  # a project's indexes are no lines
        more = " ".join([*filter(None, [variables.get("UV_INDEX")]), *needs.indexes])
        variables |= {"UV_INDEX": more} if needs.indexes else {}
    return replace(needs, files=tuple(files), unsent=tuple(sorted(paths))), replace(own, variables=variables)


def plain(text: str) -> str:
    """The text with its addresses as they are without a login."""
    return _LOGIN.sub(r"\1", text)


def _may_name(path: str) -> bool:
    return path.endswith((".txt", ".in"))


def _without(path: str, content: bytes, variables: dict[str, str]) -> bytes:
    """The text without these; adds to the variables."""
    text = content.decode(errors="replace").splitlines()
    before = list(text)
    for number, line in lines(content):
        index = _INDEX.fullmatch(line)
        name = _VARIABLES.get(index[1], "") if index else ""
        if not _LOGIN.search(line) and not (name and index and index[2].startswith(("http:", "https:"))):
            continue
        if index and name:
            more = name == "UV_INDEX" and variables.get(name)
            variables[name] = f"{variables[name]} {index[2]}" if more else index[2]
            text[number - 1] = ""
        else:
            raise UsageError(
                f"{path}:{number}: {without_logins(line)}: a password that hosts would get in a file",
                "name an index with it, or put the password into pip's settings: pip config",
            )
    return "\n".join([*text, ""]).encode() if text != before else content
