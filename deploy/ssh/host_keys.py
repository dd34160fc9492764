"""Check a server's host key as OpenSSH's strict checking does: known_hosts files, revoked keys and markers."""

from __future__ import annotations

import base64
import ipaddress
import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from paramiko import PKey

from ..core.errors import UsageError
from ..door.faults import Where, fault
from . import known_hosts
from .known_hosts import Known
from .way import Trust, Way

_REVOCATIONS = b"SSHKRL\n\0"
_LONGEST_S = 10.0


def entries(trust: Trust, name: str | None = None) -> list[Known]:
    """The lines of the known_hosts files about this server, or about another `name`."""
    lines = []
    for file in map(Path, (*trust.user_files, *trust.system_files)):
        if file.is_file() and os.access(file, os.R_OK):
            lines += known_hosts.lookup(file.read_text(errors="replace"), name or trust.name, str(file))
    return lines


def types(trust: Trust) -> list[str]:
    """The types of the keys that we ask a server for; not those of revoked keys."""
    lines = entries(trust)
    revoked = {entry.key for entry in lines if entry.revoked}
    return [entry.type for entry in lines if not entry.authority and entry.key not in revoked]


def check(where: Where, way: Way, key: PKey, peer: str | None) -> None:
    """Return if the key is known. `peer`: the server's address, if the connection has no jump host.

    Raises SshFault: unknown-key, changed-key, revoked-key, weak-key; UsageError if the revoked keys cannot be read.
    """
    data, shown = key.asbytes(), f"{key.fingerprint} ({key.get_name()})"
    if way.trust.revoked and _revoked(way.trust.revoked, key):
        raise fault("revoked-key", where, f"{shown}, in {way.trust.revoked}")
    lines = entries(way.trust)
    _refuse_marked(where, lines, data, shown)
    if key.get_name() == "ssh-rsa" and key.get_bits() < way.trust.least_rsa:
        raise fault("weak-key", where, f"{shown} of {key.get_bits()} bits, fewer than {way.trust.least_rsa}")
    good = [entry for entry in lines if not entry.authority]
    if not any(entry.key == data for entry in good):
        if good:
            others = ", ".join(f"{known_hosts.fingerprint(entry.key)} at {entry.place}" for entry in good)
            raise fault("changed-key", where, f"it shows {shown}, known is {others}")
        # Like OpenSSH, accept a key at another port if the host is known without a port.
        bare = entries(way.trust, way.trust.bare) if way.trust.bare else []
        _refuse_marked(where, bare, data, shown)
        if not any(entry.key == data and not entry.authority for entry in bare):
            raise fault("unknown-key", where, shown + _authorities(lines))
    if way.trust.check_ip and peer:
        _check_address(where, way, data, shown, peer)


def _refuse_marked(where: Where, entries: list[Known], data: bytes, shown: str) -> None:
    marked = [entry for entry in entries if entry.revoked and entry.key == data]
    if marked:
        raise fault("revoked-key", where, f"{shown}, at {marked[0].place}")
    entries[:] = [entry for entry in entries if not entry.revoked]


def _authorities(entries: list[Known]) -> str:
    """The end of the message if only a certificate could prove who the server is."""
    places = [entry.place for entry in entries if entry.authority]
    return f"; {places[0]} trusts an authority for it, and Muster checks no certificates of hosts" if places else ""


def _check_address(where: Where, way: Way, data: bytes, shown: str, peer: str) -> None:
    """CheckHostIP: the server's address must not be known with another key of the same type."""
    if peer == way.host or ipaddress.ip_address(peer.partition("%")[0]).is_loopback:
        return
    lines = entries(way.trust, known_hosts.host_name(peer, way.port))
    _refuse_marked(where, lines, data, shown)
    of_type = [entry for entry in lines if not entry.authority and entry.type == known_hosts.type_of(data)]
    if of_type and all(entry.key != data for entry in of_type):
        other = f"{known_hosts.fingerprint(of_type[0].key)} at {of_type[0].place}"
        raise fault("changed-key", where, f"it shows {shown}, its address {peer} is known by {other}")


def _revoked(file: str, key: PKey) -> bool:
    """Whether RevokedHostKeys names the key: the file is a list of public keys, or the output of `ssh-keygen -k`."""
    try:
        data = Path(file).read_bytes()
    except OSError as failed:
        raise UsageError(
            f"RevokedHostKeys {file}: {failed.strerror}", "check it with `ls -l`; without it Muster trusts no host"
        ) from failed
    line = f"{key.get_name()} {key.get_base64()}\n"
    if not data.startswith(_REVOCATIONS):
        return any(_same(word, key) for word in data.split())
    program = shutil.which("ssh-keygen")
    if not program:
        raise UsageError(
            f"RevokedHostKeys {file}: only ssh-keygen reads it", "install OpenSSH's client, or list the keys"
        )
    with tempfile.NamedTemporaryFile("w", suffix=".pub") as public_key_file:
        public_key_file.write(line)
        public_key_file.flush()
        command = [program, "-Q", "-f", file, public_key_file.name]
        try:
            done = subprocess.run(
                command, stdin=subprocess.DEVNULL, capture_output=True, timeout=_LONGEST_S, check=False
            )
        except subprocess.TimeoutExpired as slow:
            raise UsageError(f"RevokedHostKeys {file}: ssh-keygen -Q takes too long", "create it again") from slow
    return done.returncode != 0


def _same(word: bytes, key: PKey) -> bool:
    try:
        return base64.b64decode(word, validate=True) == bytes(key.asbytes())
    except ValueError:
        return False
