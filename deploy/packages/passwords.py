"""Passwords that a requirements file holds in its addresses: what hosts get of the file has none.

Such a file stays on this machine (image/credentials.py). An index goes to the install with the user's own settings, on
its input; a git source is fetched here.
"""

from __future__ import annotations

import re
from dataclasses import replace

from ..core.errors import UsageError
from ..image import credentials
from .requirement_lines import lines
from .requirements import Requirements
from .settings import Settings, without_logins

_INDEX = re.compile(r"(--index-url|-i|--extra-index-url|--find-links|-f)(?:\s+|=)(\S+)")
_VARIABLES = {"--index-url": "UV_DEFAULT_INDEX", "-i": "UV_DEFAULT_INDEX", "--extra-index-url": "UV_INDEX"}
_LOGIN = re.compile(r"(https?://)[^/@\s]+@")


def take_out(needs: Requirements, own: Settings) -> tuple[Requirements, Settings]:
    """The requirements without passwords, and the settings with the indexes that had them.

    Raises UsageError for another address with a password, with file and line.
    """
    paths = {path for path, content in needs.files if credentials.kind_of(path, content) == credentials.IN_AN_ADDRESS}
    variables, files = dict(own.variables), list[tuple[str, bytes]]()
    for path, content in needs.files:
        for source in needs.git:  # also of a mere user's name: the fetched source is named without it
            content = content.replace(source.encode(), plain(source).encode())
        files.append((path, _without(path, content, variables) if path in paths else content))
    return replace(needs, files=tuple(files), unsent=tuple(sorted(paths))), replace(own, variables=variables)


def plain(text: str) -> str:
    """The text with its addresses as they are without a login."""
    return _LOGIN.sub(r"\1", text)


def _without(path: str, content: bytes, variables: dict[str, str]) -> bytes:
    """The text without these; adds to the variables."""
    text = content.decode(errors="replace").splitlines()
    for number, line in lines(content):
        if not _LOGIN.search(line):
            continue
        index = _INDEX.fullmatch(line)
        if index and (name := _VARIABLES.get(index[1])):
            more = name == "UV_INDEX" and variables.get(name)
            variables[name] = f"{variables[name]} {index[2]}" if more else index[2]
            text[number - 1] = ""
        else:
            raise UsageError(
                f"{path}:{number}: {without_logins(line)}: a password that hosts would get in a file",
                "name an index with it, or put the password into pip's settings: pip config",
            )
    return "\n".join([*text, ""]).encode()
