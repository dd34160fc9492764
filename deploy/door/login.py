"""`muster login`: let the user's own `ssh` log in to each host, and keep the connection open for other commands.

It stays open for 12 hours after the last command. ssh asks the user for whatever the host wants: a code, a touch of a
token, a password. Muster makes ssh check host keys strictly.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path

from ..core.errors import DeployError
from ..core.results import Results
from ..job.inventory import Host
from . import connection
from .connection import Opener, find_master, login_socket, opener_to
from .faults import typed_ssh
from .settings import LONGEST_SOCKET, Route

# A connection closes this long after the last command that used it.
STAYS = "12h"
# The ssh options that leave a master with the connection in the background.
_KEEP_OPEN = ("-T", "-M", "-o", f"ControlPersist={STAYS}")
_NO_KEYS = {"BatchMode": "yes", "PreferredAuthentications": "none", "PubkeyAuthentication": "no"}


def login(hosts: Iterable[Host], tell: Callable[[str], None]) -> Results[str]:
    """Open a connection to each host, one after the other; return what became of each. ssh asks in this terminal.

    tell: receives a line before each login. Raises UsageError for invalid settings.
    """
    by_name = {host.name: host for host in hosts}
    with opener_to(by_name.values(), asks=True) as (opener, routes):
        return Results(by_name).then(lambda host: _log_in(opener, host, routes[host.name], tell))


def logout(hosts: Iterable[Host]) -> dict[str, str]:
    """Close the connections that `login` has opened; return what became of each."""
    ended = {}
    with opener_to(hosts) as (_, routes):
        for name, route in routes.items():
            held = find_master(login_socket(route))
            if held:
                held.end()
            ended[name] = "closed" if held else "no connection was open"
    return ended


def _log_in(opener: Opener, host: Host, route: Route, tell: Callable[[str], None]) -> str:
    client = opener.client
    own, users = login_socket(route), client.users_socket(route.place)
    for path, words in ((own, "is open already"), (users, f"your own connection serves: {users}")):
        if path and (held := find_master(path)):
            held.close()
            return words
    if len(own) > LONGEST_SOCKET:
        raise DeployError(f"{host.name}: the path {own} is too long for a socket", "set ControlPath for this host")
    Path(own).parent.mkdir(mode=0o700, exist_ok=True)
    Path(own).unlink(missing_ok=True)  # left from a connection that is gone
    before = find_master(login_socket(route.before)) if route.before else None
    # The server must prove its known host key before ssh asks the user anything. If there is no connection to the jump
    # host yet, it may ask the user too; then this check is left to ssh itself.
    if (before or not route.before) and (refused := opener.try_login(host, route, _NO_KEYS)):
        raise refused
    tell(f"{host.name}: ssh logs in")
    line = client.line(route.place, *connection.route_options(client, route, before), *_KEEP_OPEN, "-S", own)
    code = subprocess.run([*line, "true"], check=False).returncode
    held = find_master(own)
    if code or not held:
        raise DeployError(
            f"{host.name}: ssh did not log in (code {code}); its own output is above",
            f"`{typed_ssh()} {host.name}` shows more",
        )
    held.close()
    if before:
        before.close()
    return f"is open, until {STAYS} after the last command"
