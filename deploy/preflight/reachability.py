"""Which host reaches which, what gloo and NCCL open, whose firewall dropped calls, which hosts explain that. Pure.

It sees the pairs of hosts as a table: a column is a called host, a row is a calling host, a cell is the link.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from . import prediction
from .answers import Answers, Link, Pair, pairs
from .request import TORCHRUN

MOST_LINKS = 3
ALL, MEET, DATA = "all", "meet", "data"
# Outcomes of calls that were answered: other checks look at what happened to their payload.
OPENED = ("stall-send", "stall-receive", "slow", "cut", "late", "at-times", "mute")


@dataclass(frozen=True)
class Cell:
    """How one host reaches another: the outcome on the rendezvous port, on the same port of a host that does not hold
    the rendezvous (`hint`), on the data ports, and on the other interfaces. Empty if nothing was tried."""

    meet: str
    hint: str
    data: str
    other: str

    @property
    def outcomes(self) -> list[str]:
        """All outcomes of the cell."""
        return [outcome for outcome in (self.meet, self.hint, self.data, self.other) if outcome]

    @property
    def is_dead(self) -> bool:
        """Whether no attempt succeeded."""
        return bool(self.outcomes) and "ok" not in self.outcomes

    def outcome_for(self, what: str) -> str:
        """Return the outcome that counts for a kind of fault (ALL, MEET, DATA); for ALL, the first of a dead cell."""
        if what == ALL:
            return self.outcomes[0] if self.is_dead else "ok" if self.outcomes else ""
        return (self.meet or self.hint) if what == MEET else self.data


@dataclass(frozen=True)
class Blame:
    """Failed cells, and the hosts that explain them: called hosts, calling hosts (`outgoing`), or a link's two ends."""

    hosts: tuple[str, ...]
    cells: tuple[Pair, ...]
    outgoing: bool = False
    link: Pair | None = None

    @property
    def callers(self) -> tuple[str, ...]:
        """The calling hosts of these cells."""
        return tuple(dict.fromkeys(source for source, _ in self.cells))

    def failed(self, answers: Answers) -> list[Link]:
        """Return the calls of these cells that failed."""
        return [link for pair in self.cells for link in answers.between(*pair) if not link.ok]


def table(answers: Answers) -> dict[Pair, Cell]:
    """Return the cell of every ordered pair of hosts that answered."""
    return {pair: _cell(answers, *pair) for pair in pairs(answers.hosts_with_facts)}


def blame(hosts: Sequence[str], cells: dict[Pair, str], bad: Collection[Pair]) -> list[Blame]:
    """Find the hosts that explain the pairs in `bad`. Called hosts are preferred to calling hosts, and these to links.

    `cells`: the outcomes of all pairs.
    """
    if not bad:
        return []
    columns, rows = (_full(hosts, cells, bad, end) for end in (1, 0))
    by_column = dict.fromkeys(pair for pair in bad if pair[1] in columns)
    by_row = dict.fromkeys(pair for pair in bad if pair[0] in rows)
    if len(by_row) == len(bad) and (len(by_column) < len(bad) or len(rows) < len(columns)):
        return [Blame(tuple(rows), tuple(by_row), outgoing=True)]
    causes = [Blame(tuple(columns), tuple(by_column))] if columns else []
    left = [pair for pair in bad if pair not in by_column]
    out = [pair for pair in left if pair in by_row]
    if out:
        causes.append(Blame(tuple(dict.fromkeys(pair[0] for pair in out)), tuple(out), outgoing=True))
    return causes + _singles([pair for pair in left if pair not in by_row])


def _full(hosts: Sequence[str], cells: Iterable[Pair], bad: Iterable[Pair], end: int) -> dict[str, None]:
    """Return the hosts for which all cells with the host at this end failed.

    With more than two hosts, one such cell is not enough: that is a single link.
    """
    tried, failed = (Counter(pair[end] for pair in of) for of in (cells, bad))
    least = 1 if len(hosts) == 2 else 2
    return dict.fromkeys(host for host in hosts if tried[host] == failed[host] >= least)


def _singles(bad: list[Pair]) -> list[Blame]:
    blames, ways = [], dict[frozenset[str], list[Pair]]()
    for pair in bad:
        ways.setdefault(frozenset(pair), []).append(pair)
    for both in ways.values():
        blames.append(Blame(both[0] if len(both) > 1 else (both[0][1],), tuple(both), link=both[0]))
    if len(blames) > MOST_LINKS:  # this many bad links mean that the network is split
        return [Blame(tuple(sorted({host for pair in bad for host in pair})), tuple(bad))]
    return blames


def _cell(answers: Answers, source: str, target: str) -> Cell:
    # If an interface is down, failed calls to it tell nothing new about the link.
    down = "interface-down" in (answers.picks[target].problem, answers.picks[source].problem)

    def outcome(kind: str) -> str:
        if down and kind in ("hint", "data"):
            return ""
        links = reaching_calls(answers, source, target, kind)
        bad = [link.outcome for link in links if not is_open(link)]
        if kind != "data" and len(bad) < len(links):
            return "ok"
        return bad[0] if bad else "ok" if links else ""

    return Cell(outcome("rendezvous"), outcome("hint"), outcome("data"), outcome("other"))


def reaching_calls(answers: Answers, source: str, target: str, kind: str) -> list[Link]:
    """Return the calls of a kind that show how a host is reached: at its own addresses or the rendezvous address."""
    pick, facts = answers.picks[target], answers.facts[target]
    own = prediction.own_addresses(facts)
    links = [link for link in answers.between(source, target, kind) if link.address in own or kind == "rendezvous"]
    if kind == "other":
        # The fix is to choose another interface: the other address family on the same interface does not help.
        return [link for link in links if prediction.interface_of(facts, link.address) != pick.interface]
    return [link for link in links if kind != "hint" or link.address == pick.address] or links


def is_open(link: Link) -> bool:
    """Whether a call was answered, regardless of what happened to its payload."""
    return link.ok or link.outcome in OPENED


UNUSED = (
    "none with gloo's all_reduce and broadcast, which send nothing large in this direction; other collectives "
    "would hang"
)


def opens(answers: Answers, source: str, target: str) -> bool:
    """Whether training opens data connections from one host to another: always to rank 0, else as the library does."""
    mine, theirs = (answers.picks[host].address for host in (source, target))
    # The first host's store listens at the address of the host's name, which may differ from its data address.
    store = answers.resolved(source, answers.plan.store_name) or [theirs]
    if answers.request.by_nccl or (target == answers.plan.first and theirs in store):
        return True
    return not mine or not theirs or prediction.connects(mine, theirs)


def carries(answers: Answers, source: str, target: str, each_step: bool = False) -> bool:
    """Whether all_reduce or broadcast sends much from one host to another. True if the order of the ranks is unknown.

    each_step: consider only all_reduce, because a broadcast happens once, at the start.
    """
    request, hosts = answers.request, answers.hosts
    ordered = request.style != TORCHRUN or request.rendezvous == "static"
    if request.by_nccl or not ordered or request.processes > 1 or len(answers.facts) < len(hosts):
        return True
    mine, theirs = hosts.index(source), hosts.index(target)
    ahead = theirs - mine
    tree = ahead > 0 and ahead & (ahead - 1) == 0 and mine % (2 * ahead) == 0
    return (tree and not each_step) or theirs == (mine - 1) % len(hosts)


def sender(link: Link) -> Pair:
    """Return (sender, receiver) of the bytes that stopped: a call sends a payload, then the called host returns it."""
    back = link.outcome == "stall-receive" or bool(link.send_s)
    return (link.target, link.source) if back else link.ends


def shared_hosts(answers: Answers, pairs: Collection[Collection[str]]) -> tuple[str, ...]:
    """Return the one host that all these pairs have in common, else every host in them."""
    common = tuple(host for host in answers.facts if all(host in pair for pair in pairs))
    return common if len(common) == 1 else tuple(sorted({host for pair in pairs for host in pair}))


def closed_to_itself(answers: Answers, host: str, kind: str) -> bool:
    """Whether a host cannot reach its own ports of this kind either: then its own firewall closes them."""
    own = answers.between(host, host, kind)
    return bool(own) and not any(link.ok for link in own)


def no_route_error(answers: Answers, links: Iterable[Link]) -> tuple[str, ...]:
    """Return the error of a caller's own kernel if it has no route to a called address; empty if all have routes."""
    for link in links:
        way = answers.listened(link.source, "ways").get(link.address)
        if isinstance(way, dict):
            return (f"{link.source}: its kernel says about the route to {link.address}: {way['error']}",)
    return ()


def dropping_host(answers: Answers, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the host whose own firewall dropped our packets, if there is exactly one; else nothing.

    The counts of such a firewall's rules grew while the calls were repeated. If the firewalls have no counts, it is the
    only host with rules that drop or reject.
    """
    firewalls = {host: answers.firewall(host) for host in hosts}
    counted = any(firewall.get("hits") for firewall in firewalls.values())
    having = [host for host, firewall in firewalls.items() if firewall.get("grown" if counted else "rules")]
    return tuple(having) if len(having) == 1 else ()


def translated_addresses(answers: Answers, hosts: Sequence[str]) -> dict[str, str]:
    """Return the address at which this machine calls each host that does not have that address: perhaps 1:1 NAT.

    Empty if two of the hosts have addresses in the same network: then something else is between these two.
    """
    networks = [
        {prediction.network_of(address, size) for _, address, size in prediction.reachable(facts)}
        for facts in (answers.facts[host] for host in hosts)
    ]
    if any(network & other for network, other in itertools.combinations(networks, 2)):
        return {}
    called = {host: str(answers.control.get(host, {}).get("called", "")) for host in hosts}
    return {
        host: address
        for host, address in called.items()
        if address
        and not prediction.is_loopback(address)
        and address not in prediction.own_addresses(answers.facts[host])
    }
