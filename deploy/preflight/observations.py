"""Failed calls as a sentence that is true whatever their cause is: who called whom, on which ports, what came. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Sequence

from ..core.text import binary, listed
from .answers import Answers, Link

# How many calls end, by their outcome.
_HOW = {
    "dropped": "get no answer",
    "late": "get no answer in 2.2 s, or a late one",
    "at-times": "are answered only at times",
    "refused": "are refused, although our probe listens",
    "unreachable": "are rejected as unreachable",
    "forbidden": "are forbidden by the caller's own system",
    "no-route": "find no route",
    "no-family": "find no route",
    "no-scope": "find no route",
    "no-arp": "get no answer, nor does ARP",
    "wrong-card": "get no answer, and go to another card than the host's own",
    "no-address": "get no local port or address",
    "silent": "connect, but nothing answers",
    "mute": "connect, and nothing that is sent then arrives",
    "stranger": "reach something that is not our probe",
    "other-run": "reach another preflight's probe",
    "stall-send": "connect and pass small messages, but {size} get stuck on the way there, after {moved}",
    "stall-receive": "connect and pass small messages, but {size} get stuck on the way back, after {moved}",
    "reset": "are cut off",
    "cut": "carry {moved} of {size}, then stop",
    "slow": "carry {moved} of {size} in the time that we wait",
}
_MOST_PORTS, _MOST_KINDS = 3, 2


def sentence(answers: Answers, cells: Collection[tuple[str, str]], outcomes: Collection[str] = ()) -> str:
    """What the failed calls of these pairs have in common, and on which ports calls pass there; empty: none failed.

    `outcomes`: only calls that ended so, if there are any.
    """
    links = [link for link in answers.links if (link.source, link.target) in cells and link.source != link.target]
    links = [link for link in links if "other" not in link.kinds] or links
    failed = [link for link in links if not link.ok]
    failed = [link for link in failed if link.outcome in outcomes] or failed
    if not failed:
        return ""
    common = [outcome for outcome, _ in Counter(link.outcome for link in failed).most_common(_MOST_KINDS)]
    parts = [_of(answers, [link for link in failed if link.outcome == outcome], links) for outcome in common]
    passes = [link for link in links if link.ok and link.outcome == "ok"]
    good = sorted({_port(answers, link) for link in passes} - {_port(answers, link) for link in failed})
    passing = f"; {_ports(good)} there answer{'s' if len(good) == 1 and '-' not in good[0] else ''}" if good else ""
    return "; ".join(parts) + passing


def _of(answers: Answers, failed: Sequence[Link], links: Iterable[Link]) -> str:
    cells = {(link.source, link.target) for link in failed}
    ports = {_port(answers, link) for link in failed}
    tried = [link for link in links if (link.source, link.target) in cells and _port(answers, link) in ports]
    sources, targets = (list(dict.fromkeys(getattr(link, end) for link in failed)) for end in ("source", "target"))
    largest = max(failed, key=lambda link: link.size)
    how = _HOW.get(failed[0].outcome, failed[0].outcome).format(size=binary(largest.size), moved=binary(largest.moved))
    both = set(sources) == set(targets)
    between = f"between {listed(sources)}" if both else f"from {listed(sources)} to {listed(targets)}"
    return f"calls {between} on {_ports(sorted(ports))} {how} ({len(failed)} of {len(tried)} tried)"


def _port(answers: Answers, link: Link) -> str:
    """The port; of the ports on which a host listens for data, their range."""
    low, high = answers.facts.get(link.target, {}).get("port_range", (0, 0))
    ranged = {"data", "other", "store", "network", "rate", "long"} & set(link.kinds) and low <= link.port <= high
    return f"{low}-{high}" if ranged else str(link.port)


def _ports(ports: Sequence[str]) -> str:
    several = len(ports) > 1 or "-" in "".join(ports)
    return f"port{'s' if several else ''} {listed(ports, _MOST_PORTS)}"
