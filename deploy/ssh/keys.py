"""The keys to log in with, in OpenSSH's order: certificates, the agent's keys, then files. Never a password.

Each connection has its own `Keys`. If a server accepts none, the error says which keys we offered, and why we left
out others.
"""

from __future__ import annotations

import copy
import os
import socket
from base64 import b64decode
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from paramiko import PKey, Transport
from paramiko.agent import AgentKey, AgentSSH
from paramiko.auth_strategy import AuthSource, AuthStrategy, NoneAuth
from paramiko.pkey import PublicBlob
from paramiko.ssh_exception import SSHException

from .way import Login

_CERTIFICATE = "-cert-v01@openssh.com"
_PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----"
_RSA = ("rsa-sha2-512", "rsa-sha2-256")
# An agent that asks its user first may take a while; one that never answers must not block a host forever.
_AGENT_S = 30.0


class Key(NamedTuple):
    """A key that can sign, and how a user knows it."""

    key: Any
    label: str


class Keys(AuthStrategy):  # type: ignore[misc]
    """First a login without a key, to learn what the server accepts; then each key once."""

    def __init__(self, user: str, login: Login) -> None:
        super().__init__(ssh_config=None)
        self._user, self._login = user, login
        self.offered: list[str] = []
        self.left_out: list[str] = []

    def get_sources(self) -> Iterator[AuthSource]:
        """What to try, in order."""
        yield NoneAuth(self._user)
        agent = _agent(self._login.agent)
        try:
            offered: set[bytes] = set()
            for key, label in self._in_order(_agent_keys(agent)):
                algorithms = self._accepted(key)
                if not algorithms:
                    self.left_out.append(f"{label} is of a type the settings do not accept, or too short")
                elif _blob(key) not in offered:
                    offered.add(_blob(key))
                    self.offered.append(f"{label} ({key.fingerprint})")
                    yield _Offer(self._user, key, algorithms)
        finally:
            if agent:
                agent._close()

    def _in_order(self, agent_keys: list[Key]) -> Iterator[Key]:
        """In OpenSSH's order: named certificates, the agent's keys that files name, its other keys, the files' keys."""
        publics = {path: _public(path) for path in self._login.files}
        if self._login.certificates:
            signers = [*agent_keys, *self._signers()]
            yield from (key for file in self._login.certificates for key in self._certified(file, signers))
        chosen = [entry for entry in agent_keys if entry.key.asbytes() in publics.values()]
        yield from (Key(entry.key, f"{_file_of(entry.key, publics)} from the agent") for entry in chosen)
        if not self._login.only_files:
            yield from (entry for entry in agent_keys if entry not in chosen)
        for path in self._login.files:
            yield from self._file(path, {entry.key.asbytes() for entry in chosen})

    def _file(self, path: str, done: set[bytes]) -> Iterator[Key]:
        """The key in a file, then the same key with the certificate beside the file."""
        key = None if _public(path) in done else self._load(path)
        if key:
            yield Key(_with(key, None), path)
            if key.public_blob and not self._login.certificates:
                yield Key(key, f"{path}-cert.pub")

    def _signers(self) -> Iterator[Key]:
        for path in self._login.files:
            key = self._load(path)
            if key:
                yield Key(key, path)

    def _load(self, path: str) -> PKey | None:
        try:
            status = os.stat(path)
            if status.st_uid == os.getuid() and status.st_mode & 0o077:
                self._leave_out(f"{path} can be read by others: `chmod 600 {path}`")
                return None
            return PKey.from_path(path)
        except FileNotFoundError:
            if self._login.named:
                self._leave_out(f"{path} does not exist")
        except TypeError:  # what cryptography says of a key with a passphrase when it is given none
            self._leave_out(f"{path} needs its passphrase: `ssh-add {path}`")
        except (SSHException, ValueError, OSError) as fault:
            self._leave_out(f"{path} cannot be used: {fault}")
        return None

    def _leave_out(self, why: str) -> None:
        if why not in self.left_out:
            self.left_out.append(why)

    def _certified(self, file: str, signers: Iterable[Key]) -> Iterator[Key]:
        """The certificate in a file, with its key."""
        try:
            blob = PublicBlob.from_file(file)
        except (ValueError, OSError, IndexError) as fault:
            self._leave_out(f"{file} cannot be used: {fault}")
            return
        for key, _ in signers:
            if _certifies(blob.key_blob, key.asbytes()):
                yield Key(_with(key, blob), file)
                return
        self._leave_out(f"{file} is for a key we do not have")

    def _accepted(self, key: Any) -> tuple[str, ...]:
        """The signature algorithms that the settings allow for this key, as paramiko calls them."""
        kind = str(key.public_blob.key_type if key.public_blob else key.get_name())
        tail = _CERTIFICATE if kind.endswith(_CERTIFICATE) else ""
        if "rsa" not in kind:
            return (kind,) if kind in self._login.accepted else ()
        if key.get_bits() < self._login.least_rsa:
            return ()
        return tuple(name for name in _RSA if f"{name}{tail}" in self._login.accepted)


class _Offer(AuthSource):  # type: ignore[misc]
    """One key, with the algorithms it may sign with."""

    def __init__(self, user: str, key: Any, algorithms: tuple[str, ...]) -> None:
        super().__init__(username=user)
        self._key, self._algorithms = key, algorithms

    def authenticate(self, transport: Transport) -> list[str]:
        """The methods that the server still wants; none if the login succeeded. Raises SSHException."""
        transport._preferred_pubkeys = self._algorithms
        wanted: list[str] = transport.auth_publickey(self.username, self._key)
        return wanted


def _agent(path: str | None) -> AgentSSH | None:
    """The agent at a socket; None where none answers."""
    if not path:
        return None
    agent, sock = AgentSSH(), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.settimeout(_AGENT_S)
        sock.connect(path)
        agent._connect(sock)
    except (SSHException, OSError, EOFError, ValueError):
        sock.close()
        return None
    return agent


def _agent_keys(agent: AgentSSH | None) -> list[Key]:
    """The agent's keys. A key with a certificate signs with that certificate."""
    keys = []
    for key in agent.get_keys() if agent else ():
        if key.get_name().endswith(_CERTIFICATE):
            key.public_blob = PublicBlob(key.get_name(), key.blob)
        keys.append(Key(key, f"agent's {key.comment or key.get_name()}"))
    return keys


def _blob(key: Any) -> bytes:
    """What the server gets to see of a key."""
    return bytes(key.public_blob.key_blob if key.public_blob else key.asbytes())


def _file_of(key: Any, publics: dict[str, bytes | None]) -> str:
    return next(path for path, public in publics.items() if public == key.asbytes())


def _with(key: Any, certificate: PublicBlob | None) -> Any:
    """Return the key with this certificate, or with none."""
    # An agent's key cannot be copied: it asks itself for what it does not have yet.
    copied = AgentKey(key.agent, key.blob, key.comment) if isinstance(key, AgentKey) else copy.copy(key)
    copied.public_blob = certificate
    return copied


def _public(path: str) -> bytes | None:
    """The public key of a file: the file itself, its unencrypted public part, or the file .pub beside it."""
    for file in (path, f"{path}.pub"):
        try:
            text = Path(file).read_text(errors="replace")
            if text.startswith(_PRIVATE):
                return _public_of_private(b64decode("".join(text.split("-----")[2].split())))
            words = text.split(maxsplit=2)
            if len(words) > 1 and not words[0].startswith("-"):
                return b64decode(words[1], validate=True)
        except (OSError, ValueError, IndexError):
            continue
    return None


def _public_of_private(data: bytes) -> bytes:
    """OpenSSH's own format: a magic, three strings about the passphrase, how many keys, the first's public half."""
    at = len(b"openssh-key-v1\0")
    for _ in range(3):
        at += 4 + int.from_bytes(data[at : at + 4], "big")
    size = int.from_bytes(data[at + 4 : at + 8], "big")
    return data[at + 8 : at + 8 + size]


def _certifies(certificate: bytes, public: bytes) -> bool:
    """Whether a certificate is for a key: after its type and nonce come the key's own fields."""
    kind_end = 4 + int.from_bytes(certificate[:4], "big")
    nonce_end = kind_end + 4 + int.from_bytes(certificate[kind_end : kind_end + 4], "big")
    fields = public[4 + int.from_bytes(public[:4], "big") :]
    return bool(fields) and certificate[nonce_end:].startswith(fields)
