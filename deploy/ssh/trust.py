"""`fab trust`: show a host's keys and add them to known_hosts after a yes. Never replaces or removes a key."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from paramiko import PKey

from ..config.inventory import Host
from ..core.errors import DeployError
from ..core.results import Results
from ..door.faults import fault
from . import host_keys, known_hosts, settings
from .connect import Link, Opener, attempt
from .way import Way

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
    """The keys that a host offers, without a login there; its jump hosts must be known. Raises SshFault."""
    return _scan(host, settings.load().way(host))


def add_keys(host: Host, keys: Iterable[HostKey]) -> Path:
    """Add keys to the user's first known_hosts file; returns the file. Keys that it has already are not added.

    One write appends all lines, so a reader sees whole lines. HashKnownHosts is honoured.
    Raises DeployError if the file cannot be written.
    """
    return _add(settings.load().way(host), keys)


def _add(way: Way, keys: Iterable[HostKey]) -> Path:
    files, hashed = way.trust.user_files, way.trust.hashed
    if not files:
        raise DeployError(f"{way.name}: its SSH settings name no file for known hosts", "set UserKnownHostsFile for it")
    path = Path(files[0])
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b", buffering=0) as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            text = file.read().decode(errors="replace")
            new = [key for key in keys if not _recorded(text, key)]
            lines = [known_hosts.line(key.name, key.type, key.key, os.urandom(20) if hashed else None) for key in new]
            if lines:
                file.write(("\n" * (bool(text) and not text.endswith("\n")) + "".join(lines)).encode())
    except OSError as failed:
        raise DeployError(f"{path}: cannot be written: {failed.strerror}", "check its owner with `ls -l`") from failed
    return path


def trust(hosts: Sequence[Host], ask: Callable[[str], bool], say: Callable[[str], None]) -> Results[str]:
    """Show each unknown host's keys and ask; after a yes, add them. A changed key is refused without a question.

    ask: gets a question, returns whether the answer was yes. Returns for each host what was done, in words.
    """
    ways = settings.load().ways(hosts)
    outcomes: dict[str, str | DeployError] = {}
    for host in hosts:
        try:
            outcomes[host.name] = _trust_one(host, ways[host.name], ask, say)
        except DeployError as failed:
            outcomes[host.name] = failed
    return Results(outcomes)


def _trust_one(host: Host, way: Way, ask: Callable[[str], bool], say: Callable[[str], None]) -> str:
    keys = _scan(host, way)
    known = [entry for entry in host_keys.entries(way.trust) if not entry.authority]
    where = way.where(host, jump=False)
    if any(entry.revoked and entry.key == key.key for entry in known for key in keys):
        raise fault("revoked-key", where, ", ".join(key.shown for key in keys))
    good = [entry for entry in known if not entry.revoked]
    offered_keys = {key.key for key in keys}
    # Another key of a known type is a change. So is a host that offers only keys of new types.
    others = [entry for entry in good if entry.key not in offered_keys and entry.type in {key.type for key in keys}]
    if good and (others or not any(entry.key in offered_keys for entry in good)):
        offered = ", ".join(f"{known_hosts.fingerprint(key.key)} ({key.type})" for key in keys)
        recorded = ", ".join(f"{known_hosts.fingerprint(entry.key)} at {entry.place}" for entry in others or good)
        raise fault("changed-key", where, f"it shows {offered}, known is {recorded}")
    if offered_keys <= {entry.key for entry in good}:
        return "known already"
    for key in keys:
        say(key.shown)
    question = f"{host.name}: are these the keys of {way.host}? On its console: ssh-keygen -lf /etc/ssh/ssh_host_*.pub"
    if not ask(question):
        return "not trusted"
    return f"trusted: {len(keys)} keys in {_add(way, keys)}"


class _Offered(Exception):
    def __init__(self, key: PKey) -> None:
        self.key = key


def _leave(key: PKey, peer: str | None) -> None:
    """End the connection here, so that an unknown server learns no user name and no key."""
    raise _Offered(key)


def _scan(host: Host, way: Way) -> list[HostKey]:
    opener, keys, where = Opener(), dict[bytes, HostKey](), way.where(host, jump=False)
    link = Link(way)
    try:
        opener.reach(host, link)
        for key_type in _TYPES:
            try:
                attempt(where, link, _leave, [key_type])
            except _Offered as offer:
                data = offer.key.asbytes()
                keys.setdefault(data, HostKey(way.trust.name, offer.key.get_name(), _bits(offer.key), data))
    finally:
        link.abandon()
        opener.close()
    return list(keys.values())


def _recorded(text: str, key: HostKey) -> bool:
    return any(entry.key == key.key for entry in known_hosts.lookup(text, key.name))


def _bits(key: PKey) -> int:
    # paramiko says 256 for Ed25519 as OpenSSH does.
    return int(key.get_bits())
