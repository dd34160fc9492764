"""The primitives drop and reject: what a firewall on a host, or the switch, does to some of the packets."""

from __future__ import annotations

from lab.drawn.part import Cast, Part, Subjects, breaks, firewall, harmless, host_of, part
from lab.network import PORT, Lab

DATA = "30000:65535"
# For each scope: the match, and the cause's slug without its last word.
SCOPES = {
    "all": ("", "all-ports"),
    "new TCP": ("-p tcp --syn", "all-ports"),
    "the rendezvous port": (f"-p tcp --syn --dport {PORT}", "rendezvous"),
    "the data ports": (f"-p tcp --syn --dport {DATA}", "data-ports"),
}
TABLES = {
    "in": (("filter", "INPUT -i eth0"), ("mangle", "INPUT -i eth0"), ("raw", "PREROUTING -i eth0")),
    "out": (("filter", "OUTPUT -o eth0"), ("mangle", "OUTPUT -o eth0"), ("raw", "OUTPUT -o eth0")),
}
ANSWERS = ("icmp-port-unreachable", "icmp-host-prohibited", "icmp-admin-prohibited", "tcp-reset")


def _causes(scope: str, how: str) -> tuple[str, str]:
    """The causes, and the true observations, for packets that are `dropped` or `rejected`."""
    seen = {"the data ports": "one-way", "all": "all-ports-dropped"}.get(scope, "")
    return f"{SCOPES[scope][1]}-{how}{' host-unreachable' * (scope == 'all')}", seen


def _rule(lab: Lab, cast: Cast, host: str, way: str, match: str, target: str, table: str = "filter") -> None:
    chain = dict(TABLES[way])[table]
    for family in cast.families:
        text = f"-t {table} -A {chain} {match} -j {target}".split()
        program = {"4": "iptables", "6": "ip6tables"}[family]
        done = host_of(lab, host).run(program, "-w", *text)
        if done.returncode:
            raise RuntimeError(f"{' '.join(text)}: {done.stderr}")


def _places(cast: Cast, scope: str, way: str) -> tuple[str, Subjects]:
    """The host that filters, and the hosts that may be named."""
    if scope == "the rendezvous port" and way == "in":
        host = cast.hosts[0]
    elif scope == "the rendezvous port":
        host = cast.any(but=cast.hosts[:1])
        return host, cast.ends(host, cast.hosts[0], broken_at=host)
    else:
        host = cast.any()
    return host, cast.silent(host)


@breaks("drop", "host and direction")
def a_host_drops(cast: Cast) -> Part:
    scope, way = cast.chance.choice(list(SCOPES)), cast.chance.choice(("in", "out"))
    table = cast.chance.choice(TABLES[way])[0]
    host, subjects = _places(cast, scope, way)
    causes, seen = _causes(scope, "dropped")
    return part(
        f"{host} drops {scope} on the way {way} ({table})",
        lambda lab: _rule(lab, cast, host, way, SCOPES[scope][0], "DROP", table),
        causes,
        subjects,
        seen,
    )


@breaks("reject", "host and direction")
def a_host_rejects(cast: Cast) -> Part:
    scope, way = cast.chance.choice(list(SCOPES)[1:]), cast.chance.choice(("in", "in", "out"))
    answer = cast.chance.choice(ANSWERS) if cast.families == "4" else ""
    host, subjects = _places(cast, scope, way)
    causes, seen = _causes(scope, "rejected")
    target = f"REJECT --reject-with {answer}" if answer else "REJECT"
    return part(
        f"{host} rejects {scope} on the way {way} ({answer or 'as it comes'})",
        lambda lab: _rule(lab, cast, host, way, SCOPES[scope][0], target),
        causes,
        subjects,
        seen,
    )


@breaks("drop", "pair, at a host")
def a_host_drops_one_peer(cast: Cast) -> Part:
    scope = cast.chance.choice(list(SCOPES))
    host, peer = cast.pair()
    if scope == "the rendezvous port":
        host, peer = cast.hosts[0], cast.any(but=cast.hosts[:1])
    causes, seen = _causes(scope, "dropped")

    def do(lab: Lab) -> None:
        for family in cast.families:
            program = {"4": "iptables", "6": "ip6tables"}[family]
            line = f"-w -A INPUT -s {cast.address(peer, family)} {SCOPES[scope][0]} -j DROP"
            host_of(lab, host).run(program, *line.split())

    return part(f"{host} drops {scope} from {peer}", do, causes, cast.ends(host, peer, broken_at=host), seen)


@breaks("drop", "pair, between hosts")
def the_switch_drops_a_pair(cast: Cast) -> Part:
    first, other = cast.pair()
    both = cast.chance.random() < 0.6

    def do(lab: Lab) -> None:
        lab.wire_drops(host_of(lab, first), host_of(lab, other))
        if both:
            lab.wire_drops(host_of(lab, other), host_of(lab, first))

    way = "between" if both else "one way, from"
    causes, seen = _causes("all", "dropped")
    seen += " arp-unanswered"  # ARP is dropped, too
    return part(f"the switch drops all {way} {first} and {other}", do, causes, cast.ends(first, other), seen)


@breaks("drop", "host, between hosts", "4")
def the_switch_drops_new_calls(cast: Cast) -> Part:
    """A security group: filters connections to a host by port. Stateful like a cloud's: answers pass."""
    scope = cast.chance.choice(("the rendezvous port", "the data ports"))
    host = cast.hosts[0] if scope == "the rendezvous port" else cast.any()
    ports = str(PORT) if scope == "the rendezvous port" else "32768:65535"
    # Without connection states, ebtables would also drop answers: their destination ports can be in this range, too.
    more = [] if scope == "the rendezvous port" else ["--ip-sport", "32768:65535"]

    def do(lab: Lab) -> None:
        match = ["-p", "IPv4", "--ip-proto", "tcp", "--ip-dport", ports, *more]
        for peer in lab.hosts:
            if peer.name != host:
                lab.wire_drops(peer, host_of(lab, host), *match)

    causes, seen = _causes(scope, "dropped")
    return part(f"the switch drops {scope} toward {host}", do, causes, cast.silent(host), seen)


@breaks("drop", "network")
def everybody_drops(cast: Cast) -> Part:
    scope = cast.chance.choice(("the data ports", "new TCP", "all"))
    target = cast.chance.choice(("DROP", "REJECT")) if scope == "the data ports" else "DROP"

    def do(lab: Lab) -> None:
        for host in cast.hosts:
            _rule(lab, cast, host, "in", SCOPES[scope][0], target)

    how = "dropped" if target == "DROP" else "rejected"
    causes, seen = _causes(scope, how)
    return part(f"every host {target.lower()}s {scope}", do, causes, cast.everyone(), seen)


@breaks("drop", "setting: a firewall with a list of ports")
def only_a_list_of_ports_is_open(cast: Cast) -> Part:
    host, target = cast.any(), cast.chance.choice(("DROP", "REJECT"))
    ports = cast.chance.choice((f"{PORT}", f"22,{PORT}", f"{PORT},50000:50200", f"22,80,443,{PORT},29501:29600"))

    def do(lab: Lab) -> None:
        _rule(lab, cast, host, "in", "-m conntrack --ctstate ESTABLISHED,RELATED", "ACCEPT")
        if "6" in cast.families:
            host_of(lab, host).firewall("INPUT -p ipv6-icmp -j ACCEPT", families="6")
        _rule(lab, cast, host, "in", f"-p tcp -m multiport --dports {ports}", "ACCEPT")
        _rule(lab, cast, host, "in", "", target)

    causes, seen = _causes("the data ports", "dropped" if target == "DROP" else "rejected")
    return part(f"{host} accepts new calls on {ports} only, else {target}", do, causes, cast.silent(host), seen)


@breaks("drop", "host: its own loopback")
def loopback_is_filtered(cast: Cast) -> Part:
    host = cast.hosts[0] if cast.chance.random() < 0.7 else cast.any()
    return part(
        f"{host} drops what comes over its own loopback",
        firewall(host, "INPUT -i lo -j DROP", families=cast.families),
        "loopback-silent interface-down",
        cast.alone(host),
    )


@breaks("drop", "host: the kernel's ARP")
def arp_is_dropped(cast: Cast) -> Part | None:
    if cast.families != "4" or cast.count > 3:
        return None
    host, way = cast.any(), cast.chance.choice(("-o", "-i"))

    def do(lab: Lab) -> None:
        place = lab.hosts.index(host_of(lab, host))
        lab.on_switch("ebtables", "-A", "FORWARD", way, f"eth0-{place}", "-p", "ARP", "-j", "DROP")

    seen = "all-ports-dropped no-route"
    return part(
        f"the switch drops ARP {'to' if way == '-o' else 'from'} {host}",
        do,
        "arp-unanswered host-unreachable",
        cast.silent(host),
        seen,
    )


def _match(cast: Cast, words: str, match: str, target: str = "DROP") -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))

    return part(f"{', '.join(hosts)} {target.lower()} {words}", firewall(hosts, f"INPUT -i eth0 {match} -j {target}"))


@harmless("drop", "host: what no run uses")
def other_traffic_is_dropped(cast: Cast) -> Part:
    words, match = cast.chance.choice(
        (
            ("ping", "-p icmp --icmp-type echo-request"),
            ("UDP", "-p udp"),
            ("port 22", "-p tcp --dport 22"),
            ("ports below 20000", "-p tcp --dport 1:20000 --syn"),
            ("a stranger", "-s 203.0.113.0/24"),
            ("multicast", "-d 224.0.0.0/4"),
            ("fragments", "-f"),
        )
    )
    return _match(cast, words, match, cast.chance.choice(("DROP", "REJECT")))


@harmless("drop", "host: strangers", "4")
def only_the_cluster_is_let_in(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))
    return part(
        f"{', '.join(hosts)} let only the cluster in",
        firewall(hosts, "INPUT -i lo -j ACCEPT", f"INPUT -s {cast.net4}.0/24 -j ACCEPT", "INPUT -j DROP"),
    )


@harmless("drop", "network: the other family", "4")
def the_other_family_is_dropped(cast: Cast) -> Part:
    return part(
        "every host drops IPv6, which the cluster has not",
        firewall(cast.hosts, "INPUT -j DROP", "OUTPUT -j DROP", families="6"),
    )


@harmless("drop", "direction that gloo never takes")
def calls_nobody_makes_are_dropped(cast: Cast) -> Part | None:
    if cast.count < 3 or cast.families != "4":
        return None
    smaller, larger = sorted(cast.chance.sample(cast.hosts[1:], 2))
    return part(
        f"{larger} drops new calls from {smaller}, whom it calls itself",
        firewall(larger, f"INPUT -s {cast.address(smaller)} -p tcp --syn -j DROP"),
    )
