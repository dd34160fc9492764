r"""Check http(s) addresses that somebody else may have written: which are accepted, and which are never contacted.

Parsers differ (the host of `http://a\@b/` is a for one, b for the next), so only plain addresses are accepted: then
what the user is asked about is what is contacted.
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
# Addresses that serve only the machine itself, and give out its keys: link-local addresses, and clouds' own services.
_SERVICES = [
    ipaddress.ip_network(net)
    for net in (
        *("169.254.0.0/16", "100.100.100.200/32", "168.63.129.16/32", "192.0.0.192/32"),
        *("fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128"),
    )
]
# An IPv6 address in one of these networks has an IPv4 address in its last 32 bits.
_WRAPPING_NETWORKS = [
    ipaddress.ip_network(net) for net in ("::/96", "::ffff:0:0/96", "::ffff:0:0:0/96", "64:ff9b::/96")
]
_NAMES = ("metadata", "metadata.google.internal", "instance-data", "instance-data.ec2.internal")


def is_web(text: str) -> bool:
    """Whether a text is an http or https address, however it is written; True also if it cannot be parsed."""
    try:
        return urlsplit(text).scheme in ("https", "http")
    except ValueError:
        return True


def check(text: str, where: str) -> None:
    """Raise UsageError for an address that parsers could read differently, or that no file may refer to."""
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
    """Look up a host's name; raise DeployError if it leads to an address that no file may refer to.

    `before`: the address that redirected here. No other server may redirect to this machine itself.
    """
    host, first = urlsplit(url).hostname or "", urlsplit(before).hostname
    try:
        rows = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return  # a proxy may resolve it; otherwise the connection fails
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
    """The IP address that connecting programs read from a host: also 2852039166, 0xa9fea9fe and 169.254.43518."""
    try:
        return ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        pass
    try:
        return ipaddress.IPv4Address(socket.inet_aton(host.rstrip(".")))
    except OSError:
        return None


def _v4(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """The IPv4 addresses that an IPv6 address contains."""
    if not isinstance(number, ipaddress.IPv6Address):
        return []
    inner = (
        [ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)] if any(number in net for net in _WRAPPING_NETWORKS) else []
    )
    return [*inner, *filter(None, [number.sixtofour])]


def _is_service(number: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    return any(each in net for each in (number, *_v4(number)) for net in _SERVICES if each.version == net.version)
