"""Reachability: which connections that training needs fail, and the smallest thing that explains them. Pure.

Failing connections are first sorted by what they are (rendezvous or data port, dropped or rejected), then reduced: a
column is the host that is called, a row the one that calls, a single cell the link between the two.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from deploy.preflight import prediction
from deploy.preflight.answers import Answers, Link, pairs
from deploy.preflight.verdict import WARNING, Finding, listed

SILENT = "both nodes hang without a word, or `The client socket has timed out after 60000ms`"
LATER = "all nodes hang silently after rendezvous, until the timeout (30 min)"
REFUSED = "`connectFullMesh failed ... Connection refused` on one node, a hang on the others"
DROPS, REJECTS = ("dropped",), ("refused", "unreachable", "forbidden", "reset")
IDENTITY = ("stranger", "other-run", "silent")


@dataclass(frozen=True)
class Cell:
    """How one host reaches another: outcomes of the rendezvous port, the data ports, and of all that was tried."""

    meet: str
    data: str
    other: str
    hint: str

    @property
    def dead(self) -> bool:
        """Nothing at all got through."""
        said = [outcome for outcome in (self.meet, self.data, self.other, self.hint) if outcome]
        return bool(said) and "ok" not in said


def check(answers: Answers) -> Iterator[Finding]:
    """At most one finding for each kind of trouble and each set of hosts."""
    if len(answers.told) < 2:
        return
    yield from _strangers(answers)
    yield from _six(answers)
    table = {pair: _cell(answers, *pair) for pair in pairs(answers.told)}
    lost = {host for host in answers.told if len(answers.told) > 2 and _cut_off(table, host)}
    for host in lost:
        yield _unreachable(answers, table, host)
    rest = {pair: cell for pair, cell in table.items() if not set(pair) & lost}
    yield from _wrong_network(answers, rest)
    for what in ("meet", "data"):
        for how, outcomes in (("dropped", DROPS), ("rejected", REJECTS), ("no-route", ("no-route", "no-address"))):
            bad = [pair for pair, cell in rest.items() if getattr(cell, what) in outcomes]
            if what == "data":
                bad = [pair for pair in bad if rest[pair].other != "ok" or _firewalled(answers, pair)]
            if bad:
                yield from _reduced(answers, rest, bad, what, how)


def _cell(answers: Answers, source: str, target: str) -> Cell:
    def outcome(kind: str) -> str:
        tried = answers.between(source, target, kind)
        if kind == "store":
            tried = tried[:1]
        own = prediction.own_addresses(answers.facts[target])
        tried = [link for link in tried if link.address in own or link.ok or kind == "rendezvous"]
        bad = [link.outcome for link in tried if not link.ok and not link.outcome.startswith("stall")]
        if kind in ("rendezvous", "other") and len(bad) < len(tried):
            return "ok"  # several addresses of one host: that one of them works is enough here, _six looks closer
        return bad[0] if bad else "ok" if tried else ""

    return Cell(outcome("rendezvous"), outcome("data"), outcome("other"), outcome("hint"))


def _cut_off(table: dict[tuple[str, str], Cell], host: str) -> bool:
    """Nothing comes in and nothing goes out."""
    return all(cell.dead for pair, cell in table.items() if host in pair)


def _unreachable(answers: Answers, table: dict[tuple[str, str], Cell], host: str) -> Finding:
    links = [link for link in answers.links if host in (link.source, link.target) and link.source != link.target]
    no_route = links and all(link.outcome in ("no-route", "no-address") for link in links if link.source == host)
    cause, group = ("no-route", "links") if no_route else ("host-unreachable", "links")
    text = f"{host} reaches no other host and is reached by none"
    fix = f"on {host}: ip addr; ip route; then its firewall (sudo iptables -S, sudo nft list ruleset) and the switch"
    return Finding(cause, group, (host,), text, _evidence(links), SILENT, fix)


def _strangers(answers: Answers) -> Iterator[Finding]:
    """Somebody else answers where a host of ours should."""
    for target in answers.told:
        own = prediction.own_addresses(answers.facts[target])
        busy = answers.listens.get(target, {}).get("failed", {})
        wrong = [
            link
            for link in answers.links
            if link.target == target
            and (link.address in own or "rendezvous" in link.kinds)
            and (link.outcome in IDENTITY or (link.host and link.host != target))
            and "hint" not in link.kinds
            and str(link.port) not in busy
        ]
        if wrong:
            who = wrong[0].host or "something that is not our probe"
            text = f"at {target}'s address {wrong[0].address} {who} answers"
            fix = f"see who has it, on {wrong[0].source}: ip neigh show {wrong[0].address}; a proxy, a second host?"
            yield Finding("wrong-machine", "links", (target,), text, _evidence(wrong), SILENT, fix)


def _six(answers: Answers) -> Iterator[Finding]:
    """torch tries a name's IPv6 addresses first, and does not go on to IPv4 when packets vanish."""
    for kind in ("rendezvous", "store"):
        found: dict[str, list[str]] = {}
        links: list[Link] = []
        for source, target in pairs(answers.told):
            tried = answers.between(source, target, kind)
            six = [link for link in tried if ":" in link.address and link.outcome == "dropped"]
            if six and any(link.ok for link in tried if ":" not in link.address):
                found.setdefault(target, []).append(source)
                links += six
        for target, sources in found.items():
            everyone = len(sources) == len(answers.told) - 1
            hosts = (target,) if everyone or len(sources) > 1 else (sources[0],)
            name = answers.plan.endpoint if kind == "rendezvous" else answers.plan.store_name
            text = (
                f"{name} has an IPv6 address, which torch tries first, and {target} drops IPv6 from {listed(sources)}"
            )
            fix = f"give the endpoint as the IPv4 address, or on {listed(hosts)}: let IPv6 through (sudo ip6tables -S)"
            yield Finding("ipv6-blackhole", "links", hosts, text, _evidence(links), SILENT, fix, direction="one-way")
            return


def _wrong_network(answers: Answers, table: dict[tuple[str, str], Cell]) -> Iterator[Finding]:
    """The address that will be picked is not reached, another one of the same host is: the choice is wrong."""
    wrong: dict[str, list[tuple[str, str]]] = {}
    for pair, cell in table.items():
        if cell.data not in ("", "ok") and cell.other == "ok" and not _firewalled(answers, pair):
            wrong.setdefault(pair[1], []).append(pair)
    for host, cells in wrong.items():
        pick = answers.plan.data[host]
        links = [link for pair in cells for link in answers.between(*pair, "data") if not link.ok]
        good = next(link.address for link in answers.between(*cells[0], "other") if link.ok)
        name = prediction.interface_of(answers.facts[host], good)
        text = (
            f"{host} would be reached at {pick.address} ({pick.how}), where its peers do not get; {good} ({name}) works"
        )
        symptom = "`connect: Network is unreachable`, `No route to host`, or a hang"
        yield Finding(
            "other-network",
            "links",
            (host,),
            text,
            _evidence(links),
            symptom,
            f"on {host}: export GLOO_SOCKET_IFNAME={name} NCCL_SOCKET_IFNAME=={name}",
        )


def _firewalled(answers: Answers, pair: tuple[str, str]) -> bool:
    """Whether the caller has an address in the network of the picked one, so that it is not the route that fails."""
    source, target = pair
    address = answers.plan.data[target].address
    return bool(address) and prediction.shares_network(answers.facts[source], address)


def _reduced(
    answers: Answers, table: dict[tuple[str, str], Cell], bad: Sequence[tuple[str, str]], what: str, how: str
) -> Iterator[Finding]:
    """Columns first, then rows, then single links."""
    left = list(bad)
    asked = [pair for pair, cell in table.items() if getattr(cell, what)]
    columns, rows = [], []
    for host in answers.told:
        column = [pair for pair in asked if pair[1] == host]
        if (
            column
            and all(pair in left for pair in column)
            and (len(column) > 1 or len(answers.told) == 2 or what == "meet")
        ):
            columns.append(host)
    for host in answers.told:
        row = [pair for pair in asked if pair[0] == host]
        if len(row) > 1 and all(pair in left for pair in row) and len(columns) < len(answers.told) - 1:
            rows.append(host)
    if rows and len(rows) < max(1, len(columns)) and all(pair[0] in rows for pair in left):
        columns = []
    done = [pair for pair in left if pair[1] in columns]
    if done:
        yield _finding(answers, table, done, tuple(columns), what, how)
    left = [pair for pair in left if pair not in done]
    out = [pair for pair in left if pair[0] in rows]
    if out:
        yield _finding(answers, table, out, tuple(rows), what, how, outgoing=True)
    single = [pair for pair in left if pair not in out]
    seen = set[frozenset[str]]()
    for pair in single:
        if frozenset(pair) not in seen:
            seen.add(frozenset(pair))
            both = [one for one in single if set(one) == set(pair)]
            yield _finding(answers, table, both, pair if len(both) > 1 else (pair[1],), what, how, link=pair)


def _finding(
    answers: Answers,
    table: dict[tuple[str, str], Cell],
    cells: Sequence[tuple[str, str]],
    hosts: tuple[str, ...],
    what: str,
    how: str,
    outgoing: bool = False,
    link: tuple[str, str] | None = None,
) -> Finding:
    kind = "rendezvous" if what == "meet" else "data"
    links = [one for pair in cells for one in answers.between(*pair, kind) if not one.ok]
    low, high = answers.facts[cells[0][1]]["port_range"]
    ports = str(answers.want.port) if what == "meet" else f"{low}-{high}"
    every = all(table[pair].dead for pair in cells)
    open_else = not every
    cause = _cause(what, how, every)
    sources = list(dict.fromkeys(pair[0] for pair in cells))
    verb = {"dropped": "drops", "rejected": "rejects", "no-route": "has no route for"}[how]
    which = "all TCP" if every else f"TCP {ports}"
    text = f"{listed(hosts)} {verb} {which} from {listed(sources)}"
    if outgoing or how == "no-route":
        text = (
            f"{listed(hosts if outgoing else sources)} {verb} {which} to {listed(dict.fromkeys(p[1] for p in cells))}"
        )
    if link:
        text = f"{link[1]} {verb} {which} from {link[0]}" + (" and the other way round" if len(cells) > 1 else "")
    if open_else and what == "data" and any("ok" in (table[pair].meet, table[pair].hint) for pair in cells):
        text += f" ({answers.want.port} is open)"
    needed = what == "meet" or any(_needed(answers, pair) for pair in cells)
    return Finding(
        cause if needed else "one-way",
        "links",
        tuple(sources) if how == "no-route" and not outgoing else hosts,
        text,
        _evidence(links) + _good(answers, cells, kind),
        (SILENT if what == "meet" else REFUSED if how == "rejected" else LATER) if needed else "none with gloo",
        _fix(answers, cells, how, "1:65535" if every else ports.replace("-", ":"), hosts, outgoing),
        "fault" if needed else WARNING,
        link or (cells[0] if len(cells) == 1 else None),
        "one-way" if all((pair[1], pair[0]) not in cells for pair in cells) else "both",
    )


def _cause(what: str, how: str, every: bool) -> str:
    if how == "no-route":
        return "no-route"
    if every:
        return f"all-ports-{how}"
    return f"{'rendezvous' if what == 'meet' else 'data-ports'}-{how}"


def _needed(answers: Answers, pair: tuple[str, str]) -> bool:
    """Whether training opens connections this way: to rank 0 always, between others as the backend does."""
    if pair[1] == answers.plan.first or answers.want.backend == "nccl":
        return True
    mine, theirs = (answers.plan.data[host].address for host in pair)
    return not mine or not theirs or prediction.connects(mine, theirs)


def _fix(
    answers: Answers, cells: Sequence[tuple[str, str]], how: str, ports: str, hosts: tuple[str, ...], outgoing: bool
) -> str:
    source, target = cells[0]
    if how == "no-route":
        address = answers.plan.data[target].address or target
        return f"on {source}: ip route get {address}; add the route, or name the interface that has one"
    networks = [
        ipaddress.ip_interface(f"{address}/{prefix}").network
        for _, address, prefix in prediction.reachable(answers.facts[source])
    ]
    network = networks[0] if networks else answers.plan.data[source].address
    if outgoing:
        return (
            f"on {listed(hosts)}: sudo iptables -I OUTPUT -p tcp -d {network} -j ACCEPT (see: sudo iptables -S OUTPUT)"
        )
    rule = f"sudo ufw allow proto tcp from {network} to any port {ports}"
    return f"on {listed(hosts)}: {rule}   (or the same in its cloud security group)"


def _good(answers: Answers, cells: Sequence[tuple[str, str]], kind: str) -> tuple[str, ...]:
    """One like it that works: it shows that the port was listened on."""
    hosts = {host for pair in cells for host in pair}
    for link in answers.links:
        if link.ok and kind in link.kinds and link.source != link.target and {link.source, link.target} & hosts:
            return (f"{link.source} -> {link.target} answers in {link.ms:g} ms",)
    return ()


def _evidence(links: Sequence[Link], most: int = 3) -> tuple[str, ...]:
    shown: list[str] = []
    for link in links:
        same = [one for one in links if (one.source, one.target) == (link.source, link.target)]
        if same[0] is link:
            more = f" ({len(same)} ports tried)" if len(same) > 1 else ""
            shown.append(link.told() + more)
    return (*shown[:most], *([f"and {len(shown) - most} more"] if len(shown) > most else ()))
