"""SSH failures in words: each kind has its message and the next command.

reasons.py finds the kind in what `ssh` prints; all other code reads `SshFault.kind`.
"""

from __future__ import annotations

import os
import shlex
from typing import Literal, NamedTuple

from ..core.errors import DeployError
from ..core.program import READ_AS_HOSTS

# The environment variable for the path of an SSH settings file to use instead of the usual ones.
VARIABLE = "MUSTER_SSH_CONFIG"

Kind = Literal[
    "resolve",
    "refused",
    "unreachable",
    "timeout",
    "silent",
    "dropped",
    "forbidden",
    "key-rejected",
    "closed",
    "password-only",
    "second-factor",
    "unknown-key",
    "changed-key",
    "revoked-key",
    "weak-key",
    "no-shell",
    "forced",
    "no-sh",
    "no-library",
    "sessions",
    "slow",
    "unstarted",
    "hung",
    "flood",
    "lost",
    "protocol",
]


class SshFault(DeployError):
    """A host could not be reached, or its connection was lost; `kind` says how. `brief`: see the property."""

    def __init__(self, kind: Kind, message: str, hint: str, brief: str = "") -> None:
        super().__init__(message, hint)
        self.kind: Kind = kind
        self._brief = brief or message

    @property
    def brief(self) -> str:
        """The message without the part about what was running."""
        return self._brief

    @property
    def slug(self) -> str:
        """The slug of its row in the table of causes."""
        return _WORDS[self.kind][0]


class FaultPlace(NamedTuple):
    """Where a fault happened: the user's name for the host, and the address, port and user that SSH uses.

    `jump`: these are of a jump host on the way to `host`, and the fault is the jump host's. `target`: what to give to
    --hosts. `alias`: its name in known_hosts, if the settings have one (HostKeyAlias).
    """

    host: str
    address: str
    port: int
    user: str
    target: str
    jump: bool = False
    alias: str = ""


# Kind -> the slug of its row in deploy/causes/ (kinds without a row of their own use `ssh`), the message, and the next
# command.
_WORDS: dict[Kind, tuple[str, str, str]] = {
    "resolve": (
        "ssh-name",
        "the name {address} does not resolve{detail}",
        "check the spelling, or give its IP; `{ssh} -G {target}` shows how your SSH settings translate it",
    ),
    "refused": (
        "ssh-refused",
        "{at} refuses the connection: no SSH server listens there, or a firewall rejects it{detail}",
        "start sshd there (`systemctl start ssh`), or give its port: --hosts {bracketed}:PORT",
    ),
    "unreachable": (
        "ssh-timeout",
        "{at} cannot be reached: there is no route, no machine has that address, or a firewall rejects the connection",
        "`ip route get {address}` shows the route from here; is a VPN or jump host missing?",
    ),
    "timeout": (
        "ssh-timeout",
        "no answer from {at} within {detail} s: the machine is off, or a firewall drops packets",
        "`nc -vz {address} {port}`; allow TCP {port} from here, or name a jump host (gateway, ProxyJump)",
    ),
    "silent": (
        "ssh-silent",
        "{at} accepts the connection but does not answer like an SSH server within {detail} s",
        "is {port} the port of its SSH server? `nc {address} {port}` should print SSH-2.0-...",
    ),
    "dropped": (
        "ssh-silent",
        "{at} hung up before login, {detail} times. Its log says why: too many logins at once (MaxStartups), this "
        "address is banned, or its server cannot start a session",
        "on its console: `journalctl -u ssh | tail`; wait a minute, or raise MaxStartups in its sshd_config",
    ),
    "forbidden": (
        "ssh",
        "the jump host before {at} forbids this connection ({detail})",
        "in the jump host's sshd_config: `AllowTcpForwarding yes`, and no PermitOpen or Match that excludes it",
    ),
    "key-rejected": (
        "ssh-key",
        "{at} accepts none of your keys for {user}: {detail}",
        "with a passphrase or a token: `muster login --hosts {target}`; else `ssh-copy-id -p {port} {user}@{address}`, "
        "or set the right key (IdentityFile, User) in ~/.ssh/config; if the key is installed there: "
        "`journalctl -u ssh | tail` on its console",
    ),
    "closed": (
        "ssh-key",
        "{at} accepts {user}'s key, then hangs up: the account is closed there, or the machine is starting or "
        "shutting down",
        "on its console: `journalctl -u ssh | tail`, `chage -l {user}`, `cat /etc/nologin /run/nologin`",
    ),
    "password-only": (
        "ssh-key",
        "{at} accepts no keys from {user}, only {detail}",
        "`muster login --hosts {target}` logs in once, with your own ssh; or set PubkeyAuthentication yes there",
    ),
    "second-factor": (
        "ssh-key",
        "{at} accepts {user}'s key but also wants {detail}, which needs a person each time",
        "`muster login --hosts {target}` asks you once, and the other commands use that connection",
    ),
    "unknown-key": (
        "ssh-host-key-unknown",
        "{at} shows an unknown host key: {detail}",
        "`muster trust --hosts {target}` shows the key and asks you",
    ),
    "changed-key": (
        "ssh-host-key-changed",
        "THE HOST KEY OF {at} HAS CHANGED: it shows {detail}, but another key is known at {known}. Somebody may "
        "intercept it, "
        "or the host was reinstalled",
        "compare on its console: `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub`; only if it is the same, "
        "`ssh-keygen -R '{known_as}' -f {file}`, then `muster trust --hosts {target}`",
    ),
    "revoked-key": (
        "ssh-host-key-changed",
        "{at} shows a host key that is marked as revoked: {detail}",
        "do not log in; ask the operator of {address}",
    ),
    "weak-key": (
        "ssh",
        "{at} shows a host key that is too short: {detail}",
        "make a longer one there (`ssh-keygen -A` makes an ed25519 key), or lower RequiredRSASize in ~/.ssh/config",
    ),
    "no-shell": (
        "ssh-shell",
        "{at} lets {user} in, but the command that Muster sent did not start{detail}",
        "`{ssh} {target} true` shows the same; without a shell there: `chsh -s /bin/sh {user}`; or use another user: "
        "--hosts USER@{address}",
    ),
    "forced": (
        "ssh-shell",
        "{at} lets {user} in, but runs its own command instead of the one that Muster sent{detail}",
        "on its console: `sudo sshd -T -C user={user},host={address},addr={address} | grep -i forcecommand`, `grep -n "
        "command= ~{user}/.ssh/authorized_keys`: remove it for {user}; or use another user: --hosts USER@{address}",
    ),
    "no-sh": (
        "ssh-shell",
        "{at} lets {user} in, but the command that Muster sent, `sh`, did not start{detail}",
        "`{ssh} {target} command -v sh`: is sh installed (the package dash or bash), and in the PATH?",
    ),
    "no-library": (
        "ssh-shell",
        "{at} lets {user} in, but no command starts there: {program} lacks the library {library}{detail}",
        "on its console, as a user whose login shell starts: `ldd $(command -v {program})` shows all that it "
        "lacks; `dpkg -S {library}` (or `rpm -qf`) shows the package to reinstall",
    ),
    "sessions": (
        "ssh-sessions",
        "{at} lets {user} in, but opens no session for a command{detail}",
        "on that host: `sudo sshd -T | grep -i maxsessions` should say at least 1",
    ),
    "slow": (
        "ssh-slow",
        "{detail}",
        "the command may still be running there; `{ssh} {target} uptime` shows whether the machine is busy",
    ),
    "unstarted": (
        "ssh-slow",
        "{detail}",
        "`time {ssh} {target} true`; in ~/.bashrc there, as the first line: [ -t 0 ] || return",
    ),
    "hung": ("folder-silent", "{detail}", "on {host}: {fix}"),
    "flood": (
        "ssh-shell",
        "it sent {detail}; Muster stopped reading",
        "log in and look at what answers there: `{ssh} {target}`",
    ),
    "lost": (
        "ssh-lost",
        "the connection to {at} was lost{detail}",
        "`{ssh} {target} uptime` shows whether the host is back; containers that were started there keep running",
    ),
    "protocol": (
        "ssh",
        "{at} and Muster could not agree on a connection: {detail}",
        "`{ssh} -v {target}` shows what each side offers",
    ),
}


def fault(kind: Kind, where: FaultPlace, detail: str = "", **more: str) -> SshFault:
    """Make the fault with its kind's message and hint. `detail`: what is special to it: seconds, keys, server output.

    `more`: further fields of the texts. They become parts of shell commands, so they must need no quoting.
    """
    bracketed = f"[{where.address}]" if ":" in where.address else where.address
    _, message, hint = _WORDS[kind]
    fields = {
        **where._asdict(),
        **{"at": f"{bracketed}:{where.port}", "bracketed": bracketed},
        # The host's name in known_hosts, which `ssh-keygen -R` looks for.
        "known_as": where.alias or (where.address if where.port == 22 else f"[{where.address}]:{where.port}"),
        # The known_hosts file: without -f, ssh-keygen would use the default one.
        "file": shlex.quote(more.get("known", "").partition(":")[0]),
        "detail": detail,
        "ssh": typed_ssh(),
        **more,
    }
    on_the_way = "its jump host: " if where.jump else ""
    head = f"{where.host}: {on_the_way}"
    if kind == "resolve" and where.target in READ_AS_HOSTS:
        hint += "; if a run is meant: `muster runs` lists the runs of this folder"
    # A caller that knows what was running when the connection was lost needs the message without that detail.
    brief = message.format(**{**fields, "detail": ""}) if kind == "lost" else ""
    return SshFault(kind, head + message.format(**fields), hint.format(**fields), brief and head + brief)


def typed_ssh() -> str:
    """Return `ssh` as a person must type it to use the settings that Muster uses."""
    path = os.environ.get(VARIABLE)
    return f"ssh -F {shlex.quote(path)}" if path else "ssh"
