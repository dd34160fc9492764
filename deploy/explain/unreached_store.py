"""Signs that a node did not reach one of torch's stores: the rendezvous, or the store that rank 0 opens later. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from .reading import Line, Reading
from .signs.kinds import PREFLIGHT
from .signs.table import NO_FAMILY, NOT_REACHED, STORE, UNKNOWN_NAME
from .words import compile_limited

_LITERAL = compile_limited(r"[\d.]+|.*:.*")
_NAME = compile_limited(r"[A-Za-z0-9][\w.:-]{0,252}")

_FILE = compile_limited(r"\.[a-z]\w{1,5}(?:\.\d+|\.gz)?$|/|^stdin$")

# The operating system chooses ports from here on; a lower port was chosen by a person, so it is the rendezvous port.
_EPHEMERAL = 32768
# Ray does not use torch's rendezvous: its only store is at a port that Ray chose.
_RAY_PREFIX = compile_limited(r"\(\w* ?pid=\d")

Explained = tuple[str, str, tuple[str, ...], tuple[Line, ...], str]


def explained(readings: Sequence[Reading]) -> Explained | None:
    """Return (cause, what, maybe, evidence, next), or None if every node reached its store."""
    calls = [call for reading in readings for call in reading.calls]
    unknown = [call for call in calls if UNKNOWN_NAME.search(call.text)]
    reached_not = [call for call in calls if STORE.search(call.text)]
    at_rendezvous = [reading.node for reading in readings if reading.at_rendezvous]
    if not reached_not and not unknown:
        return None
    address = STORE.search((reached_not or unknown)[0].text) or UNKNOWN_NAME.search(unknown[0].text)
    assert address is not None
    host, port = address[1], address[2]
    if unknown:
        causes = ["peer-name-unresolvable", "endpoint-unresolvable"]
        cause, other = reversed(causes) if at_rendezvous else causes
        what = f"{_node(unknown[0].speaker)} cannot resolve the name {host}"
        return cause, what, (other, "name-unresolvable"), tuple(unknown[:2]), f"getent hosts {_argument(host)}"
    rest = " ".join(_reason(call.text) for call in calls)
    lines = tuple(reached_not[:2])
    if at_rendezvous or int(port) < _EPHEMERAL or _RAY_PREFIX.search(lines[0].text):
        nodes = at_rendezvous or list(dict.fromkeys(line.node for line in reached_not))
        of_nodes = tuple(line for line in reached_not if line.node in nodes)[:2]
        return _rendezvous(readings, nodes, of_nodes or lines, host, port, rest)
    who = _node(lines[0].speaker)
    what = f"the nodes met, but then {who} did not reach {host} at port {port}, which the system chose"
    if "No route to host" in rest or "Network is unreachable" in rest:
        what = f"there is no route from {who} to {host}, or a firewall there rejects connections"
        maybe = ("no-route", "rendezvous-rejected", "data-ports-rejected", "peer-name-wrong")
        return "host-unreachable", what, maybe, lines, PREFLIGHT
    if _LITERAL.fullmatch(host):
        return "data-ports-dropped", what, ("data-ports-rejected", "rendezvous-dropped"), lines, PREFLIGHT
    maybe = ("peer-name-wrong", "name-loopback", "data-ports-rejected", "data-ports-dropped")
    return "same-hostname", f"{what}, or its name resolves to another address", maybe, lines, PREFLIGHT


def _rendezvous(
    readings: Sequence[Reading], nodes: list[str], lines: tuple[Line, ...], host: str, port: str, rest: str
) -> Explained:
    """Explain why some nodes, or all of them, did not reach the rendezvous."""
    if len(readings) > 1 and len(nodes) == len(readings):
        what = (
            f"no node reached {host}:{port}, not even the node that should host it: no node took itself for that host"
        )
        if "No route to host" in rest:
            return "endpoint-foreign", what, ("endpoint-nobody",), lines, PREFLIGHT
        return "name-loopback", what, ("endpoint-foreign", "endpoint-nobody", "other-network"), lines, PREFLIGHT
    what = f"{_node(nodes[0])} did not reach the rendezvous at {host}:{port}"
    calls = [call for reading in readings for call in reading.calls]
    family = tuple(call for call in calls if NO_FAMILY.search(call.text))
    if family and ":" in host:
        what = f"{_node(family[0].speaker)} has no IPv6 to reach the rendezvous at {host} with"
        return "no-route", what, ("interface-no-address", "ipv6-blackhole"), family[:2], "ip -6 route"
    if "Network is unreachable" in rest:
        return "no-route", f"{what}: it has no route to it", ("interface-down",), lines, "ip route"
    if "No route to host" in rest:
        maybe = ("no-route", "endpoint-foreign", "rendezvous-rejected")
        return "host-unreachable", f"{what}: no machine there answers at that address", maybe, lines, PREFLIGHT
    by_name = () if _LITERAL.fullmatch(host) else ("ipv6-blackhole", "endpoint-loopback")
    maybe = ("rendezvous-rejected", "host-unreachable", "duplicate-address", *by_name)
    if "Connection refused" in rest:
        return (
            "rendezvous-rejected",
            f"{what}: nothing listens there, or a firewall rejects connections",
            ("rendezvous-dropped", *maybe[1:]),
            lines,
            PREFLIGHT,
        )
    # In the laboratory, `rendezvous-dropped` was right in 20 of 47 failures that said no more than this.
    return "", what, ("rendezvous-dropped", *maybe[:4]), lines, PREFLIGHT


def _node(name: str) -> str:
    """A node as the subject of a sentence; if the name is only that of a log file, it says so."""
    return f"a node (its output: {name})" if _FILE.search(name) else name


def _reason(text: str) -> str:
    """The reason for a failed call: the words after the address."""
    address = STORE.search(text)
    more = NOT_REACHED.search(text)
    return " ".join(part for part in (address["rest"] if address else "", more[1] if more else "") if part)


def _argument(name: str) -> str:
    """A name from a log as an argument for a command to type; HOST if it does not look like a name."""
    return name if _NAME.fullmatch(name) else "HOST"
