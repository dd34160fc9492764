"""`muster trust`: show a host's keys, refuse changed ones, add unknown ones after a yes; never replace or remove any.

`ssh` fetches the keys, through the host's jump hosts, and `ssh-keygen` finds which of them are known. faults.py has the
messages about unknown and changed keys.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import hmac
import os
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from ..core.errors import DeployError
from ..core.results import Results
from ..job.inventory import Host
from .connection import Opener, opener_to
from .faults import SshFault, fault
from .settings import Route, path, run_limited

# A server shows one key per connection, so Muster connects once for each type.
_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512,rsa-sha2-256")
_HEADER = re.compile(r"# Host .+ found: line (\d+) ?(CA|REVOKED)?")


class HostKey(NamedTuple):
    """A server's key: `name` is the server's name in known_hosts; `type` and `text` are the key as written there.

    `shown`: the line that `ssh-keygen -lf` prints for it: `256 SHA256:... [a]:2222 (ED25519)`.
    """

    name: str
    type: str
    text: str
    shown: str

    @property
    def fingerprint(self) -> str:
        """Its fingerprint: `SHA256:...`"""
        return self.shown.split()[1]


class KnownHostsLine(NamedTuple):
    """A line of known_hosts about a server: its key, its place (`file:line`), and its mark (CA or REVOKED), if any."""

    type: str
    text: str
    place: str
    mark: str


def trust(hosts: Sequence[Host], ask: Callable[[str], bool], say: Callable[[str], None]) -> Results[str]:
    """Show the keys of each unknown host and ask; after a yes, add them. Refuse a changed key without a question.

    ask: receives a question, returns whether the answer was yes. Returns for each host what was done, in words.
    """
    with opener_to(hosts) as (opener, routes):
        return Results({host.name: host for host in hosts}).then(
            lambda host: _trust_one(host, routes[host.name], _scan(opener, host, routes[host.name]), ask, say)
        )


def _trust_one(
    host: Host, route: Route, keys: list[HostKey], ask: Callable[[str], bool], say: Callable[[str], None]
) -> str:
    known = _known(route, keys[0].name)
    where = route.fault_place(host)
    offered = {key.text for key in keys}
    if any(entry.mark == "REVOKED" and entry.text in offered for entry in known):
        raise fault("revoked-key", where, ", ".join(key.shown for key in keys))
    good = [entry for entry in known if not entry.mark]
    # A different key of a known type is a changed key. So are keys that are all of types not known for this host.
    others = [entry for entry in good if entry.text not in offered and entry.type in {key.type for key in keys}]
    if good and (others or not any(entry.text in offered for entry in good)):
        shown = ", ".join(f"{key.fingerprint} ({key.type})" for key in keys)
        places = ", ".join(entry.place for entry in others or good)
        raise fault("changed-key", where, shown, known=places)
    if offered <= {entry.text for entry in good}:
        return "known already"
    for key in keys:
        say(key.shown)
    on_console = "On its console: ssh-keygen -lf /etc/ssh/ssh_host_*.pub"
    if not ask(f"{host.name}: are these the keys of {route.address}? {on_console}"):
        return "not trusted"
    return f"trusted: {len(keys)} keys in {_add(route, keys)}"


def _scan(opener: Opener, host: Host, route: Route) -> list[HostKey]:
    """Fetch the host's key of each type, as ssh records it in a file.

    ssh does not log in as the user: an unknown server must learn neither the user's name nor a public key.
    """
    keys, faults = dict[str, HostKey](), list[SshFault]()
    # `-l` overrides the user in the settings.
    stranger = replace(route, place=route.place._replace(user="muster"))
    for number, types in enumerate(_TYPES):
        file = opener.client.folder / f"keys-{number}"
        file.unlink(missing_ok=True)  # left from the previous host
        options = {
            "HostKeyAlgorithms": types,
            "StrictHostKeyChecking": "accept-new",
            "UserKnownHostsFile": str(file),
            "GlobalKnownHostsFile": "none",
            "HashKnownHosts": "no",
            "CheckHostIP": "no",
            "PreferredAuthentications": "none",
            "PubkeyAuthentication": "no",
            **({"KnownHostsCommand": "none"} if route.value("knownhostscommand") else {}),
        }
        if failed := opener.try_login(host, stranger, options):
            faults.append(failed)
            if failed.kind != "protocol":  # `protocol` may only mean that the host has no key of this type
                break
        for line in file.read_text().splitlines() if file.exists() else ():
            name, kind, text = line.split()[:3]
            keys.setdefault(text, HostKey(name, kind, text, run_limited(["ssh-keygen", "-lf", str(file)])[1].strip()))
    if not keys:
        raise faults[0] if faults else fault("protocol", route.fault_place(host), "it shows no key")
    return list(keys.values())


def _known(route: Route, name: str) -> list[KnownHostsLine]:
    """Return the lines about a server in the known_hosts files."""
    files = [*_files(route, "userknownhostsfile"), *_files(route, "globalknownhostsfile")]
    return [line for file in files for line in _known_in(file, name)]


def _known_in(file: Path, name: str) -> list[KnownHostsLine]:
    """Return the lines about a server in one file, with their places."""
    _, out, _ = run_limited(["ssh-keygen", "-F", name, "-f", str(file)])
    lines, header = list[KnownHostsLine](), None
    for line in out.splitlines():
        if match := _HEADER.match(line):
            header = match
        elif header:
            words = line.split()
            kind, text = words[1:3] if not words[0].startswith("@") else words[2:4]
            lines.append(KnownHostsLine(kind, text, f"{file}:{header[1]}", header[2] or ""))
    return lines


def _files(route: Route, keyword: str) -> list[Path]:
    """Return the files that a setting lists. `ssh -G` prints no quotes, so a path with a blank looks like two paths."""
    words = [word for word in " ".join(route.answer.get(keyword, ())).split() if word.lower() != "none"]
    whole = path(" ".join(words))
    return [whole] if len(words) > 1 and whole.exists() else [path(word) for word in words]


def _add(route: Route, keys: Iterable[HostKey]) -> Path:
    """Add those keys that the user's first known_hosts file does not have yet; return the file.

    One write appends all lines, so a reader sees whole lines. HashKnownHosts is honoured.
    Raises DeployError if the file cannot be written.
    """
    files = _files(route, "userknownhostsfile")
    if not files:
        raise DeployError(
            f"{route.place.name}: its SSH settings name no file for known hosts", "set UserKnownHostsFile for it"
        )
    file, hashed = files[0], route.value("hashknownhosts") == "yes"
    try:
        file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o600)
        with os.fdopen(descriptor, "r+b") as opened:
            fcntl.flock(opened, fcntl.LOCK_EX)
            text = opened.read()
            new = [key for key in keys if key.text not in {known.text for known in _known_in(file, key.name)}]
            lines = [f"{_hashed(key.name) if hashed else key.name} {key.type} {key.text}\n" for key in new]
            if lines:
                opened.write(b"\n" * (bool(text) and not text.endswith(b"\n")) + "".join(lines).encode())
    except OSError as failed:
        raise DeployError(f"{file}: cannot be written: {failed.strerror}", "check its owner with `ls -l`") from failed
    return file


def _hashed(name: str) -> str:
    """Return a server's name as HashKnownHosts writes it (sshd(8), SSH_KNOWN_HOSTS FILE FORMAT)."""
    salt = os.urandom(20)
    digest = hmac.new(salt, name.encode(), hashlib.sha1).digest()
    return "|".join(["", "1", base64.b64encode(salt).decode(), base64.b64encode(digest).decode()])
