"""`fab login`: let the user's own `ssh` log in to each host, and hold the connection open for the other commands.

ssh asks whatever the host asks: a code, a touch of a token, a password. It is told to be strict about host keys.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from ..config.inventory import Host
from ..core.errors import DeployError
from ..core.results import Results
from ..door.faults import fault
from . import host_keys, master, settings
from .way import Client, Way

# So long after the last command, a connection closes.
STAYS = "12h"
# ssh adds a suffix while it makes the socket; macOS allows 104 letters in all.
_LONGEST_PATH = 104 - 18
_STRICT = {
    "StrictHostKeyChecking": "yes",
    "VerifyHostKeyDNS": "no",
    "NoHostAuthenticationForLocalhost": "no",
    "UpdateHostKeys": "no",
}
_ALONE = {
    **{"ForwardAgent": "no", "ForwardX11": "no", "ClearAllForwardings": "yes", "PermitLocalCommand": "no"},
    **{"Tunnel": "no", "BatchMode": "no", "ControlMaster": "yes", "ControlPersist": STAYS},
    # A dead link ends the connection, and so every command that uses it, within half a minute.
    **{"ServerAliveInterval": "10", "ServerAliveCountMax": "3"},
}


def login(hosts: Iterable[Host], tell: Callable[[str], None]) -> Results[str]:
    """Open a connection to each host, one after the other; what became of each. ssh asks in this terminal.

    tell: gets a line before each login. Raises UsageError for invalid settings.
    """
    results: dict[str, str | DeployError] = {}
    ways = settings.load(for_ssh=True).ways(list(hosts := list(hosts)))
    for host in hosts:
        try:
            results[host.name] = _log_in(host, ways[host.name], tell)
        except DeployError as failed:
            results[host.name] = failed
    return Results(results)


def logout(hosts: Iterable[Host]) -> dict[str, str]:
    """Close the connections of `login`; what became of each."""
    ended = {}
    for name, way in settings.load(for_ssh=True).ways(list(hosts)).items():
        client = way.client
        is_open = client is not None and master.alive(client.line[0], client.own)
        if client and is_open:
            master.end(client.line[0], client.own)
        ended[name] = "closed" if is_open else "no connection was open"
    return ended


def _log_in(host: Host, way: Way, tell: Callable[[str], None]) -> str:
    client = way.client
    if client is None:
        raise DeployError(f"{host.name}: there is no ssh on this machine", "install OpenSSH's client")
    for path, words in ((client.own, "is open already"), (client.users, f"your own connection serves: {client.users}")):
        if path and master.alive(client.line[0], path):
            return words
    for hop in (*way.hops, way):
        if not host_keys.types(hop.trust):
            raise fault("unknown-key", hop.where(host, hop is not way), "known_hosts has none for it")
    folder = Path(client.own).parent
    if len(client.own) > _LONGEST_PATH:
        raise DeployError(f"{host.name}: {folder} is too long a path for a socket", "set ControlPath for this host")
    folder.mkdir(mode=0o700, exist_ok=True)
    Path(client.own).unlink(missing_ok=True)  # of a connection that is gone
    tell(f"{host.name}: ssh logs in")
    code = subprocess.run(_line(client), check=False).returncode
    if code or not master.alive(client.line[0], client.own):
        raise DeployError(
            f"{host.name}: ssh did not log in (code {code}); its own words are above",
            f"`{' '.join([*client.line, client.name])}` shows more",
        )
    return f"is open, until {STAYS} after the last command"


def _line(client: Client) -> list[str]:
    """The command that logs in, runs nothing, and leaves the connection to a master in the background."""
    options = [word for name, value in {**_STRICT, **_ALONE}.items() for word in ("-o", f"{name}={value}")]
    # ssh takes the first value that it finds: ours stand before those of the user's options.
    program, *place = client.line
    return [program, *options, "-S", client.own, "-T", *place, client.name, "true"]
