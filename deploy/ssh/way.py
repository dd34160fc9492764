"""One connection as the user's SSH settings describe it: address, jump hosts, user, keys. Frozen, no effects."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import NamedTuple

from ..config.inventory import Host
from ..core.errors import UsageError
from ..door.faults import Where
from .known_hosts import host_name


class Algorithms(NamedTuple):
    """The algorithms that we offer a server, best first. `known_first`: key types in known_hosts go first."""

    ciphers: tuple[str, ...]
    macs: tuple[str, ...]
    kex: tuple[str, ...]
    host_keys: tuple[str, ...]
    known_first: bool


class Login(NamedTuple):
    """Which keys log in. `agent`: the socket's path. `named`: the user named the files; they are not the defaults.

    `accepted`: signature algorithms as OpenSSH calls them. `least_rsa`: bits.
    """

    files: tuple[str, ...]
    certificates: tuple[str, ...]
    agent: str | None
    only_files: bool
    named: bool
    accepted: tuple[str, ...]
    least_rsa: int


class Trust(NamedTuple):
    """How to check a host key: `name` as known_hosts calls the server, `bare` the same without its port.

    `revoked`: a file of revoked keys. `least_rsa`: bits. `check_ip`: its address must not have another key.
    """

    name: str
    bare: str | None
    user_files: tuple[str, ...]
    system_files: tuple[str, ...]
    revoked: str | None
    hashed: bool
    check_ip: bool
    least_rsa: int


class Client(NamedTuple):
    """The user's own `ssh` for this server. `line`: the program with its options; `name`: what to connect to.

    `own`: the socket of the connection that `fab login` opens. `users`: the ControlPath of the settings; empty if
    there is none, or if they take unknown host keys.
    """

    line: tuple[str, ...]
    name: str
    own: str
    users: str

    @property
    def opened(self) -> bool:
        """Whether there is a socket; its connection may be dead."""
        return any(path and os.path.exists(path) for path in (self.own, self.users))


@dataclass(frozen=True)
class Way:
    """The way to one server. `name`: what the user calls it; `before`: the last jump host on the way.

    `refusal`: why only the user's own ssh can log in there.
    """

    name: str
    host: str
    port: int
    user: str
    before: Way | None
    proxy: str | None
    family: int
    bind: str | None
    timeout_s: float
    algorithms: Algorithms
    login: Login
    trust: Trust
    client: Client | None = None
    refusal: UsageError | None = None

    @property
    def hops(self) -> tuple[Way, ...]:
        """The jump hosts, in the order of the connection."""
        return (*self.before.hops, self.before) if self.before else ()

    @property
    def endpoint(self) -> tuple[str, int, str]:
        """Address, port and jump hosts. If these are equal, two hosts are one machine."""
        through = ",".join(f"{hop.host}:{hop.port}" for hop in self.hops) or self.proxy or ""
        return self.host, self.port, through

    def where(self, host: Host, jump: bool) -> Where:
        """The names for a fault of this connection on the way to `host`."""
        target = f"{self.user}@{self.name}:{self.port}" if jump else host.name
        return Where(host.name, self.host, self.port, self.user, target, jump)


def trust_names(alias: str | None, address: str, port: int) -> tuple[str, str | None]:
    """`name` and `bare` of Trust. An alias stands for both."""
    if alias:
        return alias.lower(), None
    return host_name(address, port), address.lower() if port != 22 else None
