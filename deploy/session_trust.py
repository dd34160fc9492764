"""Host keys on purpose: show a host's keys, and write them down as known once a person said yes (`fab trust`).

A room of the door to SSH (session.py). Nothing here replaces or removes a key.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from fabric import Connection
from paramiko import PKey, SSHClient
from paramiko.client import MissingHostKeyPolicy

from deploy import known_hosts, session_settings
from deploy.errors import DeployError
from deploy.inventory import Host
from deploy.known_hosts import Known
from deploy.results import Results
from deploy.session_open import Opener, abandon, attempt
from deploy.ssh_faults import fault

# A server shows one key a connection: we ask once for each type.
_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ssh-rsa")
_SHORT = {"ssh-ed25519": "ED25519", "ssh-rsa": "RSA"}


class HostKey(NamedTuple):
    """A server's key: `name` as known_hosts calls the server, `type` as known_hosts writes it."""

    name: str
    type: str
    bits: int
    key: bytes

    @property
    def shown(self) -> str:
        """The line `ssh-keygen -lf` prints for it: `256 SHA256:... [a]:2222 (ED25519)`."""
        short = _SHORT.get(self.type, "ECDSA")
        return f"{self.bits} {known_hosts.fingerprint(self.key)} {self.name} ({short})"


def scan_keys(host: Host) -> list[HostKey]:
    """The keys a host shows, without logging in there; its jump hosts must be known. Raises SshFault."""
    return _scan(host, session_settings.load().connection(host))


def add_keys(host: Host, keys: Iterable[HostKey]) -> Path:
    """Write keys into the user's first known_hosts file; returns it. What stands there is not written again.

    Whoever reads meanwhile finds whole lines: one write appends them all. HashKnownHosts is honoured.
    Raises DeployError when the file cannot be written.
    """
    connection = session_settings.load().connection(host)
    path = session_settings.known_files(connection)[0]
    hashed = str(connection.ssh_config.get("hashknownhosts", "no")).lower() == "yes"
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read().decode(errors="replace")
            new = [key for key in keys if not _stands(text, key)]
            lines = [known_hosts.line(key.name, key.type, key.key, os.urandom(20) if hashed else None) for key in new]
            if lines:
                file.write(("\n" * (bool(text) and not text.endswith("\n")) + "".join(lines)).encode())
    except OSError as failed:
        raise DeployError(f"{path}: cannot be written: {failed.strerror}", "see who owns it: `ls -l`") from failed
    return path


def trust(hosts: Sequence[Host], ask: Callable[[str], bool], say: Callable[[str], None]) -> Results[str]:
    """Show each unknown host's keys and ask; a yes makes them known. A changed key is refused, not asked about.

    ask: gets a question, returns whether it was answered with yes. Returns in words what was done for each host.
    """
    settings = session_settings.load()
    outcomes: dict[str, str | DeployError] = {}
    for host in hosts:
        try:
            outcomes[host.name] = _trust_one(host, settings.connection(host), ask, say)
        except DeployError as failed:
            outcomes[host.name] = failed
    return Results(outcomes)


def _trust_one(host: Host, connection: Connection, ask: Callable[[str], bool], say: Callable[[str], None]) -> str:
    keys = _scan(host, connection)
    known = session_settings.known_keys(connection)
    where = session_settings.where(host, connection, jump=False)
    if any(entry.revoked and entry.key == key.key for entry in known for key in keys):
        raise fault("revoked-key", where, ", ".join(key.shown for key in keys))
    of_type = {entry.type: entry for entry in known if not entry.revoked}
    for key in keys:
        entry = of_type.get(key.type)
        if entry and all(other.key != key.key for other in known):
            shown = f"it shows {known_hosts.fingerprint(key.key)}, known is {known_hosts.fingerprint(entry.key)}"
            raise fault("changed-key", where, f"{shown} at {entry.place}")
    if {key.key for key in keys} <= {entry.key for entry in known}:
        return "known already"
    for key in keys:
        say(key.shown)
    question = (
        f"{host.name}: are these the keys of {connection.host}? On its console: ssh-keygen -lf /etc/ssh/ssh_host_*.pub"
    )
    if not ask(question):
        return "not trusted"
    return f"trusted: {len(keys)} keys in {add_keys(host, keys)}"


class _Shown(Exception):
    def __init__(self, key: PKey) -> None:
        self.key = key


class _Leave(MissingHostKeyPolicy):  # type: ignore[misc]
    def missing_host_key(self, client: SSHClient, hostname: str, key: PKey) -> None:
        """Go no further: no user and no key of ours is named to a server that is not known."""
        raise _Shown(key)


def _scan(host: Host, connection: Connection) -> list[HostKey]:
    opener, found = Opener(), dict[bytes, HostKey]()
    name = session_settings.known_name(connection)
    where = session_settings.where(host, connection, jump=False)
    try:
        opener.reach(host, connection)
        for key_type in _TYPES:
            try:
                attempt(where, connection, _Leave(), [Known(key_type, b"", "", False)])
            except _Shown as seen:
                data = seen.key.asbytes()
                found.setdefault(data, HostKey(name, seen.key.get_name(), _bits(seen.key), data))
    finally:
        abandon(connection)
        opener.close()
    return list(found.values())


def _stands(text: str, key: HostKey) -> bool:
    return any(entry.key == key.key for entry in known_hosts.lookup(text, key.name))


def _bits(key: PKey) -> int:
    # paramiko says 256 for Ed25519 as OpenSSH does.
    return int(key.get_bits())
