r"""Addresses of http(s) that somebody else may have written: which are taken, and which no file may make us contact.

Readers of addresses differ (`http://a\@b/` is on a for one, on b for the next), so only plain ones are taken: what a
person is asked about is what is contacted.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from urllib.parse import urlsplit

from ...core.errors import DeployError, UsageError
from .settings import without_logins

_PLAIN = re.compile(
    r"https?://(?:[^\s/@?#\\]+@)?(?P<host>[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::(?P<port>\d{1,5}))?(?:/[!-\[\]-~]*)?"
)
# What answers only the machine itself, with its keys: link-local addresses, and the services of clouds.
_SERVICES = [
    ipaddress.ip_network(net)
    for net in (
        *("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        *("fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"),
    )
]
# An IPv4 address within one of these stands in the last 32 bits.
_AROUND = [ipaddress.ip_network(net) for net in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")]
_NAMES = ("metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")


def is_web(text: str) -> bool:
    """Whether a text is an address of http or https, however it is written; also one that nobody can read."""
    try:
        return urlsplit(text).scheme in ("https", "http")
    except ValueError:
        return True


def check(text: str, where: str) -> None:
    """Raise UsageError for an address that readers could take differently, and for one that no file may name."""
    match = _PLAIN.fullmatch(text)
    if not match or int(match["port"] or 0) > 65535 or not text.isascii() or len(text) > 2000:
        raise UsageError(
            f"{without_logins(where)}: this address is not a plain one", "write it as https://HOST/PATH, in ASCII"
        )
    check_host(match["host"], where)


def check_host(host: str, where: str) -> None:
    """Raise UsageError for a host that is a link-local address, or a service that gives a machine its keys."""
    number, name = _number(host), host.lower().rstrip(".")
    if name in _NAMES or (number and _is_service(number)):
        raise UsageError(
            f"{without_logins(where)}: {host} is this machine's own service (link-local), which no file may name",
            "take it out of the file",
        )


def check_reached(url: str, before: str = "") -> None:
    """Look a host's name up, and raise DeployError where it leads to what no file may name.

    `before`: the address that led here: none leads on to this machine itself.
    """
    host, first = urlsplit(url).hostname or "", urlsplit(before).hostname
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # a proxy may know it; else it is not reached
    for *_, place in rows:
        number = ipaddress.ip_address(str(place[0]).partition("%")[0])
        inner = _v4(number)
        is_own = any(each.is_loopback or each.is_unspecified for each in (number, *inner))
        if _is_service(number) or (first and first != host and is_own):
            led = f", where {without_logins(before)[:200]} leads" if first and first != host else ""
            raise DeployError(
                f"{without_logins(url)[:300]}{led}: it is on {number}, which no file may make this machine ask",
                "take it out of the file; ask who runs that server",
            )


def _number(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, as those read it who connect: also 2852039166, 0xa9fea9fe and 169.254.43518."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def _v4(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address stands for."""
    if not isinstance(number, ipaddress.IPv6Address):
        return []
    inner = [ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)] if any(number in net for net in _AROUND) else []
    return [*inner, *filter(None, [number.sixtofour])]


def _is_service(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(each in net for each in (number, *_v4(number)) for net in _SERVICES if each.version == net.version)
