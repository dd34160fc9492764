"""The user's SSH settings, and what they make of a host: where it is, through whom, with which keys and known hosts.

A room of the door to SSH (session.py).
"""

from __future__ import annotations

import glob
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fabric import Config, Connection
from paramiko import SSHConfig
from paramiko.ssh_exception import SSHException

from deploy import known_hosts
from deploy.errors import UsageError
from deploy.inventory import Host
from deploy.known_hosts import Known
from deploy.session_keys import Keys
from deploy.ssh_faults import Where

CONNECT_TIMEOUT_S = 10
_SECTION = re.compile(r"\s*(?:host|match)(?:\s+|\s*=)", re.IGNORECASE)
_INCLUDE = re.compile(r"\s*include(?:\s+|\s*=\s*)(.+)", re.IGNORECASE)
_MOST_INCLUDES = 16


@dataclass(frozen=True)
class Settings:
    """~/.ssh/config and /etc/ssh/ssh_config, or the file MUSTER_SSH_CONFIG names alone."""

    config: Config

    def connection(self, host: Host) -> Connection:
        """A connection to the host that is not open yet, with its jump hosts as `gateway`s before it."""
        through = self._through(host.gateway) if host.gateway else None
        try:
            return Connection(host.address, host.user, host.port, config=self.config, gateway=through)
        except (ValueError, SSHException) as fault:
            raise UsageError(
                f"{host.name}: its SSH settings: {fault}", f"`ssh -G {host.destination}` shows them"
            ) from fault

    def _through(self, gateway: str) -> Connection:
        """Jump hosts with commas, the first reached first; the first's own jump host is as the settings have it."""
        hop: Connection | None = None
        for destination in gateway.split(","):
            hop = Connection(destination, config=self.config, gateway=hop)
        return hop


def load() -> Settings:
    """The settings as they are now. Raises UsageError for a file that is missing or makes no sense."""
    named = os.environ.get("MUSTER_SSH_CONFIG")
    user, system = Path.home() / ".ssh/config", Path("/etc/ssh/ssh_config")
    files = [(Path(named).expanduser(), user.parent)] if named else [(user, user.parent), (system, system.parent)]
    if named and not files[0][0].is_file():
        raise UsageError(f"MUSTER_SSH_CONFIG={named}: there is no such file", "name an SSH config file, or unset it")
    text = "\n".join(_with_includes(file, folder) for file, folder in files if file.is_file())
    try:
        parsed = SSHConfig.from_text(text)
    except SSHException as fault:
        raise UsageError(f"{files[0][0]}: {fault}", "`ssh -G a` says what OpenSSH makes of it") from fault
    overrides: dict[str, Any] = {
        "authentication": {"strategy_class": Keys},
        "timeouts": {"connect": CONNECT_TIMEOUT_S},
    }
    # lazy: a ~/.fabric.yaml is for the user's own tasks, and could turn our checks off.
    return Settings(Config(ssh_config=parsed, overrides=overrides, lazy=True))


def chain(connection: Connection) -> list[Connection]:
    """The connections that must be opened, jump hosts first, the host's own last."""
    before = connection.gateway
    return [*(chain(before) if isinstance(before, Connection) else []), connection]


def endpoint(connection: Connection) -> tuple[str, int, str]:
    """Address, port and jump hosts: two hosts where these are equal are one machine."""
    *hops, last = chain(connection)
    through = ",".join(f"{hop.host}:{hop.port}" for hop in hops) or str(last.gateway or "")
    return last.host, last.port, through


def where(host: Host, connection: Connection, jump: bool) -> Where:
    """Whom to name in a fault of this connection on the way to `host`."""
    target = f"{connection.user}@{connection.original_host}:{connection.port}" if jump else host.name
    return Where(host.name, connection.host, connection.port, connection.user, target, jump)


def known_name(connection: Connection) -> str:
    """What known_hosts calls this server; HostKeyAlias goes first."""
    alias = connection.ssh_config.get("hostkeyalias")
    return str(alias).lower() if alias else known_hosts.host_name(connection.host, connection.port)


def known_files(connection: Connection) -> list[Path]:
    """The known_hosts files that hold for this server, the user's first."""
    settings = connection.ssh_config
    user = settings.get("userknownhostsfile", "~/.ssh/known_hosts ~/.ssh/known_hosts2")
    everyone = settings.get("globalknownhostsfile", "/etc/ssh/ssh_known_hosts /etc/ssh/ssh_known_hosts2")
    words = [word for word in f"{user} {everyone}".split() if word.lower() != "none"]
    home = str(Path.home())
    return [Path(word.replace("%d", home).replace('"', "")).expanduser() for word in words]


def known_keys(connection: Connection) -> list[Known]:
    """All that those files say of this server."""
    name = known_name(connection)
    found = []
    for file in known_files(connection):
        if file.is_file() and os.access(file, os.R_OK):
            found += known_hosts.lookup(file.read_text(errors="replace"), name, str(file))
    return found


def _with_includes(file: Path, folder: Path, depth: int = 0) -> str:
    """The file's text with what it includes in place: paramiko knows no Include.

    After an included file its includer's section goes on, so that section's head is said again.
    """
    if depth > _MOST_INCLUDES:
        raise UsageError(f"{file}: includes itself", "take the circle of Include lines out")
    lines, section = [], "Host *"
    for line in file.read_text(errors="replace").splitlines():
        section = line if _SECTION.match(line) else section
        included = _INCLUDE.match(line)
        if not included:
            lines.append(line)
            continue
        for pattern in included[1].replace('"', "").split():
            for found in sorted(glob.glob(str(folder / Path(pattern).expanduser()))):
                lines.append(_with_includes(Path(found), folder, depth + 1))
        lines.append(section)
    return "\n".join(lines)
