"""`fab explain`: what a failed run said -> the known cause it shows, or what to check next. Pure.

Texts come by node, as far as they are known. What only a victim would say names no cause. Where the same words have
several causes, they are all given and preflight is what tells them apart; where there are no such words, the answer is
that it is not known.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from deploy.explain_signs import PREFLIGHT, SIGNS, VICTIMS

DOCS = "docs/troubleshooting.md"
_STORE = re.compile(
    r"The client socket has (?:timed out after \d+ms while trying to connect to|"
    r"failed to connect to any network address of) \((?P<host>[^,]+), (?P<port>\d+)\)(?P<rest>.*)"
)
_RENDEZVOUS = "RendezvousConnectionError: The connection to the C10d store has failed"
_UNKNOWN_NAME = re.compile(r"network addresses of \(([^,]+), (\d+)\) cannot be retrieved \(gai error: -[235] ")
_NO_FAMILY = re.compile(r"The (IPv[46]) network addresses of \(([^,]+), .*Address family for hostname not supported")
_ERROR = re.compile(
    r"^(?:\[\S+\]:|\[rank\d+\]: ?)?(\w+(?:\.\w+)*(?:Error|Exception|Exit|Interrupt)\b: ?.*)$", re.MULTILINE
)
_LITERAL = re.compile(r"[\d.]+|.*:.*")
_SHORTENED = 300
# Texts of the launcher: errors of a run, never of a script.
_LAUNCHER = re.compile(r"ChildFailedError|Rendezvous\w*Error|SignalException|DistStoreError|DistNetworkError|DistError")


@dataclass(frozen=True)
class Line:
    """Where something was said."""

    node: str
    number: int
    text: str


@dataclass(frozen=True)
class Explanation:
    """A cause that the output shows; with `maybe`, one of several that look the same in it."""

    cause: str
    what: str
    maybe: tuple[str, ...] = ()
    evidence: tuple[Line, ...] = ()
    next: str = PREFLIGHT

    def json(self) -> dict[str, Any]:
        """For `--json`."""
        return {**asdict(self), "docs": f"{DOCS}#{self.cause}" if self.cause else DOCS}


def explain(texts: Mapping[str, str]) -> Explanation:
    """The first cause that the texts show, by node; `cause` is empty where none is known."""
    for look in (_signs, _store, _script):
        found = look(texts)
        if found:
            return found
    victims = tuple(_lines(texts, VICTIMS))[:3]
    if victims:
        what = "these are words of nodes that lost a peer, not of the one that failed; its own output is needed"
        return Explanation("", what, evidence=victims)
    if texts and not any(_has_error(text) for text in texts.values()):
        return Explanation("", "no error in it: nodes that wait for each other say nothing until a timeout")
    return Explanation("", "no cause known to Muster is in it")


def _signs(texts: Mapping[str, str]) -> Explanation | None:
    for sign in SIGNS:
        lines = tuple(_lines(texts, sign.pattern))
        if lines:
            found = sign.pattern.search(lines[0].text)
            caught = [group or "" for group in found.groups()] if found else []
            return Explanation(sign.cause, sign.what.format(*caught, ""), sign.maybe, lines[:3], sign.next)
    return None


def _store(texts: Mapping[str, str]) -> Explanation | None:
    """A node that did not reach a store of torch: the rendezvous itself, or the one that rank 0 opens after it."""
    lines = tuple(_lines(texts, _STORE))
    if not lines:
        return None
    unknown = tuple(_lines(texts, _UNKNOWN_NAME))
    calls = [found for line in lines if (found := _STORE.search(line.text))]
    host, port, rest = calls[0]["host"], calls[0]["port"], " ".join(call["rest"] for call in calls)
    at_rendezvous = [node for node, text in texts.items() if _in_rendezvous(text)]
    if unknown:
        causes = ["peer-name-unresolvable", "endpoint-unresolvable"]
        cause, other = reversed(causes) if at_rendezvous else causes
        what = f"{unknown[0].node} cannot resolve the name {host}"
        return Explanation(cause, what, (other,), unknown[:2], f"getent hosts {host}")
    if at_rendezvous:
        return _rendezvous(texts, at_rendezvous, lines, host, port, rest)
    what = f"the nodes met, and then {lines[0].node} did not reach {host} at port {port}, one that the system chose"
    if _LITERAL.fullmatch(host):
        return Explanation("data-ports-dropped", what, ("data-ports-rejected",), lines[:2])
    maybe = ("peer-name-wrong", "name-loopback", "data-ports-rejected", "data-ports-dropped")
    return Explanation("same-hostname", f"{what}, or its name leads elsewhere", maybe, lines[:2])


def _rendezvous(
    texts: Mapping[str, str], nodes: list[str], lines: tuple[Line, ...], host: str, port: str, rest: str
) -> Explanation:
    """The rendezvous was not reached, by some nodes or by all of them."""
    if len(texts) > 1 and len(nodes) == len(texts):
        what = f"no node reached {host}:{port}, not even the one it should be on: none took itself for its host"
        if "No route to host" in rest:
            return Explanation("endpoint-foreign", what, ("endpoint-nobody",), lines[:2])
        return Explanation("name-loopback", what, ("endpoint-foreign", "endpoint-nobody", "other-network"), lines[:2])
    what = f"{nodes[0]} did not reach the rendezvous at {host}:{port}"
    lines = tuple(line for line in lines if line.node in nodes)
    family = tuple(_lines(texts, _NO_FAMILY))
    if family and ":" in host:
        what = f"{family[0].node} has no IPv6 to reach the rendezvous at {host} with"
        return Explanation("no-route", what, ("interface-no-address", "ipv6-blackhole"), family[:2], "ip -6 route")
    if "Network is unreachable" in rest:
        return Explanation("no-route", f"{what}: it has no route there", ("interface-down",), lines[:2], "ip route")
    if "No route to host" in rest:
        maybe = ("no-route", "endpoint-foreign", "rendezvous-rejected")
        return Explanation("host-unreachable", f"{what}: nobody there has that address", maybe, lines[:2])
    by_name = ("ipv6-blackhole", "endpoint-loopback")
    maybe = (
        "rendezvous-rejected",
        "host-unreachable",
        "duplicate-address",
        *(() if _LITERAL.fullmatch(host) else by_name),
    )
    return Explanation("rendezvous-dropped", what, maybe, lines[:2])


def _in_rendezvous(text: str) -> bool:
    """Whether a node did not reach the rendezvous, and not a store that torch opens after it."""
    before, failed, _ = text.partition(_RENDEZVOUS)
    inner = [line for line in before.splitlines() if "DistNetworkError:" in line]
    return bool(failed and inner and _STORE.search(inner[-1]))


def _script(texts: Mapping[str, str]) -> Explanation | None:
    """An error that the script itself raised: the first that is no word of the launcher, nor of a victim."""
    own = [line for line in _lines(texts, _ERROR) if not _LAUNCHER.search(line.text) and not VICTIMS.search(line.text)]
    if not own:
        return None
    return Explanation("script-error", f"the script failed: {own[0].text.strip()}", (), tuple(own[:2]), "the traceback")


def _lines(texts: Mapping[str, str], pattern: re.Pattern[str]) -> Iterable[Line]:
    for node, text in texts.items():
        for number, line in enumerate(text.splitlines(), 1):
            if pattern.search(line):
                yield Line(node, number, line.strip()[:_SHORTENED])


def _has_error(text: str) -> bool:
    return bool(re.search(r"Error|Traceback|error:", text))
