"""Links: which connections of the training fail, the smallest cause that explains them, and its fix. Pure."""

from __future__ import annotations

import ipaddress
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from ...causes.finding import FAULT, WARNING, Finding, find
from ...causes.table import ROWS
from ...core.program import hosts_as_typed
from ...core.text import listed, subject
from .. import prediction, reachability, remedies
from ..answers import Answers, Link, Pair, ends_of, pairs
from ..reachability import ALL, DATA, MEET, Blame, Cell

HOW = {
    "dropped": ("dropped",),
    "rejected": ("refused", "unreachable", "forbidden", "reset"),
    "no-route": ("no-route", "no-family", "no-scope"),
    "arp": ("no-arp",),
    "card": ("wrong-card",),
}
VERBS = {
    "dropped": ("drops", "drop"),
    "rejected": ("rejects", "reject"),
    "no-route": ("has no route for", "have no route for"),
}
OF_A_NEIGHBOUR = {"no-route": "no-route", "arp": "arp-unanswered", "card": "arp-wrong"}
IDENTITY = ("stranger", "other-run", "silent")
NAMES = {ALL: "all-ports", MEET: "rendezvous", DATA: "data-ports"}


def check(answers: Answers) -> Iterator[Finding]:
    """Yield at most one finding for each kind of failure and each set of hosts."""
    if len(answers.facts) < 2:
        return
    yield from _strangers(answers)
    yield from _six(answers)
    table = reachability.table(answers)
    alive = {host for pair, cell in table.items() if not cell.is_dead for host in pair}
    lost = [host for host in answers.facts if host not in alive]
    if lost:
        yield _unreachable(answers, lost)
    rest = {pair: cell for pair, cell in table.items() if alive.issuperset(pair)}
    yield from _wrong_network(answers, rest)
    for what in (ALL, MEET, DATA):
        outcome_of = {pair: outcome for pair, cell in rest.items() if (outcome := cell.outcome_for(what))}
        for how, outcomes in HOW.items():
            bad = [
                pair
                for pair, outcome in outcome_of.items()
                if outcome in outcomes and _counts(answers, pair, rest, what)
            ]
            if how != "no-route":  # a host without a route to its caller cannot answer: that is reported as no-route
                bad = [pair for pair in bad if outcome_of.get((pair[1], pair[0])) not in HOW["no-route"]]
            if what == MEET and not any(rest[pair].meet for pair in bad):
                continue
            for blame in reachability.blame(answers.hosts_with_facts, outcome_of, bad):
                yield _finding(answers, rest, blame, what, how)
        rest = {pair: cell for pair, cell in rest.items() if what != ALL or not cell.is_dead}


def _counts(answers: Answers, pair: Pair, table: dict[Pair, Cell], what: str) -> bool:
    """Whether a pair counts here: False if _wrong_network reports it already."""
    return what == MEET or table[pair].other != "ok" or _firewalled(answers, pair)


def _unreachable(answers: Answers, lost: Sequence[str]) -> Finding:
    hosts = tuple(lost)
    among = {*lost}
    links = [link for link in answers.links if link.is_outward and not among.isdisjoint(link.ends)]
    calls, called = (_outcomes(links, end) for end in (0, 1))
    aimless = tuple(host for host in lost if calls.get(host, {""}).issubset(HOW["no-route"]))
    bare = tuple(host for host in lost if not list(prediction.reachable(answers.facts[host])))
    mute = tuple(host for host in lost if {"no-arp"} in (calls.get(host), called.get(host)))
    cause = "interface-down" if bare else "no-route" if aimless else "arp-unanswered" if mute else "host-unreachable"
    closing = tuple(host for host in lost if answers.rules_that_dropped(host))
    if cause == "host-unreachable" and closing and len(lost) == len(answers.facts):
        cause = "all-ports-dropped"  # the hosts' own firewalls were seen to drop our packets
    if bare:
        hosts = bare
        text = f"{subject(bare, 'has', 'have')} no active interface with an address"
    elif aimless:
        hosts, text = aimless, f"{subject(aimless, 'has', 'have')} no route to any of the others"
    elif len(lost) == len(answers.facts):
        text = f"{listed(hosts)} cannot reach each other at all" + (": no host answers ARP requests" if mute else "")
        hosts = closing or reachability.dropping_host(answers, hosts) or hosts
    elif mute:
        hosts, text = mute, f"ARP requests between {listed(mute)} and the others get no answer: no packet passes"
    else:
        them = "it" if len(hosts) == 1 else "them"
        text = f"{subject(hosts, 'reaches', 'reach')} no other host, and no host reaches {them}"
    fix = _way_out(answers, cause, hosts, lost)
    text += "" if aimless else _outside(answers, answers.hosts_with_facts)
    if cause == "host-unreachable" and (translated := reachability.translated_addresses(answers, lost)):
        at = listed([f"{host} at {address}" for host, address in translated.items()])
        text += f"; this machine reaches {at}, which the host itself does not have: maybe no network connects the hosts"
        names = hosts_as_typed(",".join(answers.hosts))
        fix = f"muster deploy --overlay --hosts {names}, or connect the hosts by a network; else: {fix}"
    return find(
        cause,
        hosts,
        text,
        fix,
        evidence=reachability.no_route_error(answers, links) + _evidence(links),
        symptom=ROWS["host-unreachable"].symptom,
        group="links",
        cells=ends_of(links),
    )


def _way_out(answers: Answers, cause: str, hosts: Sequence[str], lost: Sequence[str]) -> str:
    """Return the fix for hosts that reach no other host."""
    known = answers.hosts_with_facts
    if cause == "interface-down":
        return remedies.on_hosts(hosts, lambda host: _up(answers, host))
    if cause == "arp-unanswered":
        return (
            f"on {listed(hosts)}: ip -br link; ip route; ip neigh; then check the cable and the VLAN of the switch port"
        )
    if cause == "no-route":
        ways = _routes(answers, tuple(pair for pair in pairs(known) if pair[0] in hosts))
        outside = f"on {listed(hosts)}: ip -br addr; ip route; its address is outside the network of the others"
        return ways or outside
    if _outside(answers, hosts):
        return (
            f"on {listed(hosts)}: ip -br link; ip route; then check the cable, the switch, or the cloud's "
            "security group"
        )
    network = remedies.network_of(answers, next((host for host in known if host not in lost), hosts[0]))
    fix = remedies.on_hosts(hosts, lambda host: _opened(answers, host, network))
    return (
        f"{fix}   (if its own firewall drops the packets; else ip -br addr; ip route; then check the switch, or "
        "the cloud's security group)"
    )


def _outcomes(links: Iterable[Link], end: int) -> dict[str, set[str]]:
    """Return the outcomes of the calls from each host (end 0), or to each host (end 1)."""
    outcomes: dict[str, set[str]] = {}
    for link in links:
        outcomes.setdefault(link.ends[end], set()).add(link.outcome)
    return outcomes


def _outside(answers: Answers, hosts: Sequence[str]) -> str:
    """Return words for a failure that these hosts' firewalls do not explain; empty if they might."""
    firewalls = [answers.firewall(host) for host in hosts]
    clean = bool(firewalls) and all(rules.get("read") and not rules.get("rules") for rules in firewalls)
    return "; their own firewalls have no rules: the cause is between them (switch, security group)" if clean else ""


def _strangers(answers: Answers) -> Iterator[Finding]:
    """Report hosts at whose address another program, or another host, answers."""
    others = [link for link in answers.links if link.outcome in IDENTITY or link.host not in ("", link.target)]
    for target in answers.hosts_with_facts:
        own = prediction.own_addresses(answers.facts[target])
        busy = answers.listened(target, "failed")
        wrong = [
            link
            for link in others
            if link.target == target
            and (link.address in own or "rendezvous" in link.kinds)
            and "hint" not in link.kinds
            and str(link.port) not in busy
        ]
        if wrong:
            who = wrong[0].host or "something that is not preflight's probe"
            cells = ends_of(wrong)
            callers = tuple(dict.fromkeys(source for source, _ in cells))
            # With only two hosts, it is open which one is at fault: the caller's calls may be redirected, or the called
            # host's address may belong to another machine.
            hosts = (target, *callers) if len(answers.hosts) == 2 else (target,)
            look = f"ip neigh show {wrong[0].address}; sudo iptables -t nat -S OUTPUT"
            needed = any({"rendezvous", "store"} & set(link.kinds) for link in wrong)
            needed = needed or any(reachability.opens(answers, *cell) for cell in cells)
            yield find(
                "wrong-machine",
                hosts,
                f"{who} answers at {target}'s address {wrong[0].address} when {listed(callers)} connects to it",
                f"find what answers, on {wrong[0].source}: {look}; is it a proxy, or a second host?",
                FAULT if needed else WARNING,
                evidence=_evidence(wrong),
                cells=cells,
            )


def _six(answers: Answers) -> Iterator[Finding]:
    """Yield a finding if IPv6 packets get lost: torch tries a name's IPv6 address first, and then does not try IPv4."""
    for kind in ("rendezvous", "store"):
        addresses: dict[str, list[str]] = {}
        links, four = list[Link](), ""
        for source, target in pairs(answers.hosts_with_facts):
            tried = answers.between(source, target, kind)
            six = [link for link in tried if ":" in link.address and link.outcome == "dropped"]
            fours = [link.address for link in tried if link.ok and ":" not in link.address]
            if six and fours:
                four = fours[0]
                addresses.setdefault(target, []).append(source)
                links += six
        for target, sources in addresses.items():
            everyone = len(sources) == len(answers.facts) - 1
            hosts = (target,) if everyone or len(sources) > 1 else (sources[0],)
            name = answers.plan.endpoint if kind == "rendezvous" else answers.plan.store_name
            text = (
                f"{name} has an IPv6 address, which torch tries first, but IPv6 packets from {listed(sources)} get lost"
            )
            fix = f"give the endpoint as the IPv4 address: --rdzv-endpoint {four}:{answers.request.port}"
            fix += f"; or on {listed(hosts)}: let IPv6 through (sudo ip6tables -S)"
            yield find("ipv6-blackhole", hosts, text, fix, evidence=_evidence(links))
            return


def _wrong_network(answers: Answers, table: dict[Pair, Cell]) -> Iterator[Finding]:
    """Report hosts whose peers cannot reach the address that training will choose, but reach another one."""
    wrong: dict[str, list[Pair]] = {}
    for pair, cell in table.items():
        if cell.data not in ("", "ok") and cell.other == "ok" and not _firewalled(answers, pair):
            wrong.setdefault(pair[1], []).append(pair)
    every = [pair for networks in wrong.values() for pair in networks]
    level = "fault" if any(_needed(answers, pair, DATA, table[pair]) for pair in every) else WARNING
    for host, networks in wrong.items():
        pick = answers.picks[host]
        links = [link for pair in networks for link in answers.between(*pair, "data") if not link.ok]
        ways = reachability.reaching_calls(answers, *networks[0], "other")
        good = next(link.address for link in ways if reachability.is_open(link))
        name = prediction.interface_of(answers.facts[host], good)
        yield find(
            "other-network",
            (host,),
            f"{host} would use {pick.address} ({pick.how}), which its peers cannot reach; {good} ({name}) works",
            remedies.use_interface(answers, host, name),
            level,
            evidence=_evidence(links),
            cells=tuple(networks),
        )


def _firewalled(answers: Answers, pair: Pair) -> bool:
    """Whether the caller has an address in the same network as the chosen address, so its route is not the cause."""
    source, target = pair
    address = answers.picks[target].address
    return bool(address) and prediction.shares_network(answers.facts[source], address)


def _finding(answers: Answers, table: dict[Pair, Cell], blame: Blame, what: str, how: str) -> Finding:
    single = len(blame.cells) == 1 or bool(blame.link)
    if single and how in ("dropped", "rejected", "arp"):
        # Both ends of such a link are suspects, unless the firewall of one of them was seen to drop our packets.
        decided, called = reachability.dropping_host(answers, blame.cells[0]), blame.cells[0][1]
        # If the called host cannot reach these ports itself either, its own firewall is the cause.
        if reachability.closed_to_itself(answers, called, "rendezvous" if what == MEET else "self"):
            decided = decided or (called,)
        blame = replace(blame, hosts=decided or tuple(sorted(blame.cells[0], key=answers.hosts.index)))
        blame = replace(blame, outgoing=not blame.link and decided == (blame.cells[0][0],))
    if how == "rejected" and all(link.outcome == "forbidden" for link in blame.failed(answers)):
        # The caller's own kernel forbids the calls: no packet was sent.
        blame = Blame(blame.callers, blame.cells, outgoing=True)
    if how in ("no-route", "card") and not blame.outgoing:
        blame = replace(blame, hosts=blame.callers)
    cells = blame.cells
    if how in OF_A_NEIGHBOUR:
        # A host without a path to its caller cannot answer the call either, so the other direction belongs to it too.
        back = [
            pair[::-1]
            for pair in cells
            if pair[::-1] in table and table[pair[::-1]].outcome_for(what) not in ("", "ok")
        ]
        cells = tuple(dict.fromkeys((*cells, *back)))
    needed = any(_needed(answers, pair, what, table[pair]) for pair in cells)
    kinds = ("rendezvous", "hint") if what == MEET else ("data", "rendezvous") if what == ALL else ("data",)
    links = [link for pair in blame.cells for kind in kinds for link in answers.between(*pair, kind) if not link.ok]
    if how == "arp" and any(link.by for link in links):
        blame = replace(blame, hosts=tuple(dict.fromkeys(link.source for link in links if link.by)), outgoing=True)
    cause = OF_A_NEIGHBOUR.get(how) or f"{NAMES[what]}-{how}"
    # If only data connections fail, the rendezvous works, and training fails later: another symptom applies.
    later = ROWS[f"{NAMES[DATA]}-dropped"].symptom if what == DATA and how in OF_A_NEIGHBOUR else None
    return find(
        cause if needed else "one-way",
        blame.hosts,
        _text(answers, table, blame, what, how),
        _fix(answers, blame, what, how),
        FAULT if needed else WARNING,
        reachability.no_route_error(answers, links)
        + _evidence(list(dict.fromkeys(links)))
        + _grown(answers, blame.hosts)
        + _good(answers, blame.cells),
        later if needed else None,
        link=blame.link or (blame.cells[0] if len(blame.cells) == 1 else None),
        cells=cells,
    )


def _grown(answers: Answers, hosts: Sequence[str]) -> tuple[str, ...]:
    """Return the firewall rules that dropped our packets while the calls were repeated."""
    rules = [(host, rule) for host in hosts for rule in answers.rules_that_dropped(host)]
    return tuple(f"{host}, firewall: {rule}" for host, rule in rules[:2])


def _text(answers: Answers, table: dict[Pair, Cell], blame: Blame, what: str, how: str) -> str:
    sources = listed(blame.callers)
    targets = listed(dict.fromkeys(pair[1] for pair in blame.cells))
    if how in ("arp", "card"):
        return _of_a_neighbour(answers, blame, how, sources, targets)
    ports = "all TCP" if what == ALL else f"TCP {_ports(answers, blame, what)}"
    if blame.link or (len(blame.hosts) > 1 and len(blame.cells) == 1):
        first, other = blame.link or blame.cells[0]
        back = " and the other way round" if len(blame.cells) > 1 else ""
        is_how = "without a route" if how == "no-route" else how
        text = f"{ports} from {first} to {other} is {is_how}{back}"
        text += "" if how == "no-route" or len(blame.hosts) < 2 else ", by one of them or between them"
    elif blame.outgoing or how == "no-route":
        text = f"{subject(blame.hosts, *VERBS[how])} {ports} to {targets}"
    elif len(blame.hosts) > 1 and len(blame.hosts) == len(answers.facts):
        text = f"{ports} is {how} between {'all of ' if len(blame.hosts) > 2 else ''}{listed(blame.hosts)}"
    else:
        text = f"{subject(blame.hosts, *VERBS[how])} {ports} from {sources}"
    if what == DATA and any("ok" in (table[pair].meet, table[pair].hint) for pair in blame.cells):
        text += f" ({answers.request.port} is open)"
    return text + ("" if how == "no-route" else _outside(answers, [host for pair in blame.cells for host in pair]))


def _of_a_neighbour(answers: Answers, blame: Blame, how: str, sources: str, targets: str) -> str:
    links = blame.failed(answers)
    if how == "card":
        strange = next((link for link in links if link.card), None)
        where = f" ({strange.address} is {strange.card} there)" if strange else ""
        return f"{sources} has a wrong hardware address for {targets}{where}: the packets do not arrive"
    by = next((link.by for link in links if link.by), "")
    if blame.link and len(blame.cells) > 1 and not by:
        return f"{listed(blame.link)} do not answer each other's ARP requests: no packet passes between them"
    who = f"the gateway {by}, through which {sources} sends to {targets}," if by else targets
    not_ = "does not" if by or len({called for _, called in blame.cells}) == 1 else "do not"
    return f"{who} {not_} answer ARP requests{'' if by else f' from {sources}'}"


def _needed(answers: Answers, pair: Pair, what: str, cell: Cell) -> bool:
    """Whether training opens connections in this direction: always to rank 0, else as the library does."""
    if what != DATA and cell.meet:
        return True
    if what == MEET:
        return False
    return reachability.opens(answers, *pair)


def _ports(answers: Answers, blame: Blame, what: str) -> str:
    low, high = answers.facts[blame.cells[0][1]]["port_range"]
    return {ALL: "1-65535", MEET: str(answers.request.port)}.get(what, f"{low}-{high}")


def _fix(answers: Answers, blame: Blame, what: str, how: str) -> str:
    source, target = blame.cells[0]
    address = answers.picks[target].address or target
    if how == "no-route":
        if ways := _routes(answers, blame.cells):
            return ways
        return f"on {source}: ip route get {address}; add the route, or set the interface that has one"
    if how == "arp":
        return (
            f"on {source}: ip route get {address}; ip neigh show {address}; on {target}: ip addr; then check "
            "the switch port"
        )
    if how == "card":
        return f"on {source}: sudo ip neigh del {address} dev {answers.picks[source].interface or 'eth0'}"
    both = len(blame.hosts) > 1 and (len(blame.cells) == 1 or bool(blame.link))
    ports = "" if what == ALL else _ports(answers, blame, what)
    target_network = remedies.network_of(answers, target, address)
    network = remedies.network_of(answers, source, address)
    if _outside(answers, blame.hosts):
        allowed = f"all of {network}" if what == ALL else f"TCP {ports} from {network}"
        return f"in the cloud's security group of {listed(blame.hosts)}, or on the switch: allow {allowed}"
    out = remedies.let_out(remedies.interface_of(answers, source), target_network)
    if both:
        inward = remedies.let_in(remedies.interface_of(answers, target), network, ports)
        return f"on {target}: {inward}; or on {source}: {out}; or mend what is between them"
    if blame.outgoing:
        return f"on {listed(blame.hosts)}: {out}   (see: sudo iptables -S OUTPUT)"

    def let_in(host: str) -> str:
        more = f"; {remedies.let_itself()}" if reachability.closed_to_itself(answers, host, "self") else ""
        return remedies.let_in(remedies.interface_of(answers, host), network, ports) + more

    remark = f"with ufw: sudo ufw allow from {network}; or allow it in the host's cloud security group"
    return f"{remedies.on_hosts(blame.hosts, let_in)}   ({remark})"


def _opened(answers: Answers, host: str, network: str) -> str:
    name = remedies.interface_of(answers, host)
    return f"{remedies.let_in(name, network)}; {remedies.let_out(name, network)}"


def _up(answers: Answers, host: str) -> str:
    """Return commands that activate the interfaces of a host that are down, except bridges and tunnels."""
    entries = answers.facts[host]["interfaces"].items()
    down = [name for name, entry in entries if not (entry["up"] or entry["bridge"] or entry["tunnel"])]
    return "; ".join(f"sudo ip link set {name} up" for name in down) or "ip -br addr; give its interface an address"


def _routes(answers: Answers, cells: Sequence[Pair]) -> str:
    """Return commands that add routes to the peers on the same network, before any policy rule that leads elsewhere."""
    commands = {}
    for source, target in cells:
        address, name = answers.picks[target].address, remedies.interface_of(answers, source)
        if not address or not name:
            continue
        mine, whole = answers.picks[source].address, ipaddress.ip_network(remedies.network_of(answers, target, address))
        near = prediction.shares_network(answers.facts[source], address)
        if not near and prediction.parse_address(mine) in whole:
            commands[source] = [f"sudo ip addr add {mine}/{whole.prefixlen} dev {name}"]
        if near:
            length = 128 if ":" in address else 32
            commands.setdefault(source, []).append(f"sudo ip route replace {address}/{length} dev {name}")
    for source, lines in commands.items():
        six = " -6" if ":" in answers.picks[source].address else ""
        lines.append(f"sudo ip{six} rule add to {remedies.network_of(answers, source)} lookup main pref 1")
    return remedies.on_hosts(commands, lambda host: "; ".join(commands[host]))


def _good(answers: Answers, bad: Sequence[Pair]) -> tuple[str, ...]:
    """Return a connection that works, as evidence that a probe listened."""
    hosts = {host for pair in bad for host in pair}
    for link in answers.links:
        if link.ok and link.is_outward and link.pair & hosts:
            return (f"{link.describe()} in {link.ms:g} ms",)
    return ()


def _evidence(links: Sequence[Link]) -> tuple[str, ...]:
    most, ends = 3, ends_of(links)
    calls = Counter(link.ends for link in links)
    firsts = {link.ends: link.describe() for link in reversed(links)}
    shown = (f"{firsts[pair]}{f' ({calls[pair]} ports tried)' * (calls[pair] > 1)}" for pair in ends[:most])
    return (*shown, *([f"and {len(ends) - most} more"] if len(ends) > most else ()))
