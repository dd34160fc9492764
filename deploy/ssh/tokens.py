"""Expand the tokens of ssh_config(5) that `ssh -G` does not expand: %h, %d, ~, ${VAR} in paths and commands."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Mapping

_TOKEN = re.compile(r"%(.?)")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def home() -> str:
    """The user's home as OpenSSH takes it: from the user database, not from $HOME."""
    return pwd.getpwuid(os.getuid()).pw_dir


def of_server(name: str, host: str, port: int, user: str) -> dict[str, str]:
    """The values of the tokens in ProxyCommand and ProxyJump. `name`: as the user gave it; `host`: its HostName."""
    return {"%": "%", "h": host, "n": name, "p": str(port), "r": user}


def of_path(server: Mapping[str, str], alias: str | None) -> dict[str, str]:
    """The values of the tokens in paths, with those of the server. %C and %j differ by version and are left out."""
    local, me = socket.gethostname(), pwd.getpwuid(os.getuid())
    user = {"d": me.pw_dir, "i": str(me.pw_uid), "u": me.pw_name}
    return {**server, **user, "k": alias or server["n"], "l": local, "L": local.partition(".")[0]}


def path(text: str, tokens: Mapping[str, str]) -> str:
    """Replace `~`, tokens and ${VARIABLES}, once each. Raises ValueError for an unknown one."""
    return expand(_VARIABLE.sub(_variable, tilde(text)), tokens)


def tilde(text: str) -> str:
    """Replace `~` or `~user` with a home. Raises ValueError if there is no such user."""
    if not text.startswith("~"):
        return text
    name, slash, rest = text[1:].partition("/")
    try:
        folder = pwd.getpwnam(name).pw_dir if name else home()
    except KeyError as missing:
        raise ValueError(f"{text}: there is no user {name}") from missing
    return f"{folder}{slash}{rest}"


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """Replace tokens in one pass: a token inside a value is not replaced. Raises ValueError for an unknown one."""

    def value(match: re.Match[str]) -> str:
        if match[1] not in tokens:
            raise ValueError(f"{text}: {match[0]} is not a known token")
        return tokens[match[1]]

    return _TOKEN.sub(value, text)


def _variable(match: re.Match[str]) -> str:
    value = os.environ.get(match[1])
    if not value:
        raise ValueError(f"{match[0]} is not set")
    # A percent sign in a variable is a plain character.
    return value.replace("%", "%%")
