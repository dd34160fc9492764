"""Expand the tokens of ssh_config(5) that `ssh -G` leaves as they are: %h, %d, ~, ${VAR} in paths and commands."""

from __future__ import annotations

import os
import pwd
import re
import socket
from collections.abc import Mapping

_TOKEN = re.compile(r"%(.?)")
_VARIABLE = re.compile(r"\$\{([^}]*)\}")


def home() -> str:
    """The user's home as OpenSSH has it: of the user database, whatever $HOME says."""
    return pwd.getpwuid(os.getuid()).pw_dir


def of_server(name: str, host: str, port: int, user: str) -> dict[str, str]:
    """What the tokens of ProxyCommand and ProxyJump stand for. `name`: as it was asked for; `host`: its HostName."""
    return {"%": "%", "h": host, "n": name, "p": str(port), "r": user}


def of_path(server: Mapping[str, str], alias: str | None) -> dict[str, str]:
    """What the tokens of paths stand for, those of the server among them. (%C and %j differ by version: not known.)"""
    local, me = socket.gethostname(), pwd.getpwuid(os.getuid())
    user = {"d": me.pw_dir, "i": str(me.pw_uid), "u": me.pw_name}
    return {**server, **user, "k": alias or server["n"], "l": local, "L": local.partition(".")[0]}


def path(text: str, tokens: Mapping[str, str]) -> str:
    """With `~`, tokens and ${VARIABLES} put in, once each. Raises ValueError for one that is not known."""
    return expand(_VARIABLE.sub(_variable, tilde(text)), tokens)


def tilde(text: str) -> str:
    """With a home in place of `~` or `~user`. Raises ValueError where there is no such user."""
    if not text.startswith("~"):
        return text
    name, slash, rest = text[1:].partition("/")
    try:
        folder = pwd.getpwnam(name).pw_dir if name else home()
    except KeyError as missing:
        raise ValueError(f"{text}: there is no user {name}") from missing
    return f"{folder}{slash}{rest}"


def expand(text: str, tokens: Mapping[str, str]) -> str:
    """With tokens put in, in one pass: what one stands for is not looked at again. Raises ValueError."""

    def value(found: re.Match[str]) -> str:
        if found[1] not in tokens:
            raise ValueError(f"{text}: nothing stands for {found[0]}")
        return tokens[found[1]]

    return _TOKEN.sub(value, text)


def _variable(found: re.Match[str]) -> str:
    value = os.environ.get(found[1])
    if not value:
        raise ValueError(f"{found[0]} is not set")
    # A percent sign in a variable stands for itself.
    return value.replace("%", "%%")
