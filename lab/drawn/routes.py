"""The primitives remove, lie and swap: routes, addresses, interfaces, hardware addresses, container networks."""

from __future__ import annotations

import json

from lab.drawn.part import Cast, Part, breaks, harmless, host_of, ip, part
from lab.network import Lab, must

NO_ROUTE, OBSERVED = "no-route", "host-unreachable all-ports-dropped arp-unanswered"
INNER = ("docker0", "br-1f0c", "virbr0", "cni0", "lxdbr0", "br-lan")


def card(lab: Lab, host: str) -> str:
    """The hardware address of a host's network card."""
    return json.loads(must("ip", "-netns", host_of(lab, host).space, "-j", "link", "show", "eth0"))[0]["address"]


@breaks("remove", "host: its routes", "4")
def no_way_out(cast: Cast) -> Part:
    host, kind = cast.any(), cast.chance.choice(("blackhole", "unreachable", "prohibit", "throw"))
    policy = cast.chance.random() < 0.5

    def do(lab: Lab) -> None:
        if policy:
            host_of(lab, host).ip(f"route add {kind} default table 100", f"rule add to {cast.net4}.0/24 table 100")
        else:
            lines = [f"route add {kind} {cast.address(peer)}/32" for peer in cast.hosts if peer != host]
            host_of(lab, host).ip(*lines)

    words = f"{host} has a {kind} route to its peers" + (", by a policy rule" if policy else "")
    return part(words, do, NO_ROUTE, cast.silent(host), OBSERVED)


@breaks("remove", "pair: a route", "4")
def no_way_to_one(cast: Cast) -> Part:
    host, peer = cast.pair()
    kind = cast.chance.choice(("blackhole", "unreachable", "prohibit"))
    return part(
        f"{host} has a {kind} route to {peer}",
        ip(host, f"route add {kind} {cast.address(peer)}/32"),
        NO_ROUTE,
        cast.ends(host, peer, broken_at=host),
        OBSERVED,
    )


@breaks("lie", "host or pair: a gateway that is nobody", "4")
def a_gateway_that_is_nobody(cast: Cast) -> Part:
    host, peer = cast.pair()
    whole = cast.chance.random() < 0.5
    there = [name for name in cast.hosts if name != host] if whole else [peer]
    subjects = cast.silent(host) if whole else cast.ends(host, peer, broken_at=host)
    words = f"{host} sends to {'its peers' if whole else peer} by a gateway that is nobody"
    return part(
        words,
        ip(host, *(f"route add {cast.address(name)}/32 via {cast.net4}.253" for name in there)),
        "arp-unanswered no-route",
        subjects,
        OBSERVED,
    )


@breaks("remove", "host: its address", "4")
def the_address_is_another(cast: Cast) -> Part:
    host, kind = cast.any(), cast.chance.choice(("none", "other subnet", "narrow"))
    if kind == "narrow" and cast.count < 3:
        kind = "other subnet"
    new = {"none": [], "other subnet": ["address add 10.201.3.4/24 dev eth0"]}
    new["narrow"] = [f"address add {cast.address(host)}/32 dev eth0"]
    causes = {"none": "interface-no-address interface-down", "other subnet": "no-route other-network"}
    causes["narrow"] = "no-route"
    return part(
        f"{host}'s eth0 has its address: {kind}",
        ip(host, "address flush dev eth0", *new[kind]),
        causes[kind],
        cast.silent(host),
        OBSERVED,
    )


@breaks("remove", "host: its card")
def the_card_is_off(cast: Cast) -> Part:
    host, where = cast.any(), cast.chance.choice(("host", "switch"))

    def do(lab: Lab) -> None:
        if where == "host":
            host_of(lab, host).ip("link set eth0 down")
        else:
            lab.port(lab.hosts.index(host_of(lab, host)), "down")

    causes = "interface-down host-unreachable"
    return part(
        f"{host}'s cable is off at the {where}",
        do,
        causes,
        cast.silent(host),
        OBSERVED + " no-route interface-no-address",
    )


@breaks("remove", "host: its loopback")
def loopback_is_gone(cast: Cast) -> Part:
    host = cast.hosts[0] if cast.chance.random() < 0.6 else cast.any()
    how = cast.chance.choice(("link set lo down", "address del 127.0.0.1/8 dev lo"))
    causes = "interface-down loopback-silent"
    return part(f"{host}: {how}", ip(host, how), causes, cast.alone(host))


@breaks("lie", "pair: a stale neighbour")
def a_neighbour_entry_is_stale(cast: Cast) -> Part:
    host, peer = cast.pair()

    def do(lab: Lab) -> None:
        for family in cast.families:
            line = f"neigh replace {cast.address(peer, family)} lladdr 02:00:00:00:00:77 dev eth0 nud permanent"
            host_of(lab, host).ip(line)

    causes = "arp-unanswered host-unreachable arp-wrong"
    return part(
        f"{host} has a wrong hardware address for {peer}", do, causes, cast.ends(host, peer, broken_at=host), OBSERVED
    )


@breaks("remove", "host: its answers to ARP")
def arp_is_off(cast: Cast) -> Part | None:
    if cast.families != "4" or cast.count > 3:
        return None
    host = cast.any()
    return part(
        f"{host}'s card answers no ARP",
        ip(host, "link set eth0 arp off"),
        "arp-unanswered",
        cast.silent(host),
        OBSERVED + " no-route",
    )


@breaks("swap", "host: two networks", "4")
def the_cables_are_crossed(cast: Cast) -> Part:
    host = cast.any()

    def do(lab: Lab) -> None:
        lab.network("eth1", "192.168.60")
        place = lab.hosts.index(host_of(lab, host))
        for name, bridge in (("eth0", "br-eth1"), ("eth1", "br-eth0")):
            must("ip", "-netns", lab.switch, "link", "set", f"{name}-{place}", "master", bridge)

    return part(
        f"{host}'s eth0 and eth1 are plugged into each other's network",
        do,
        "host-unreachable other-network arp-unanswered",
        cast.silent(host),
        OBSERVED + " no-route",
    )


@breaks("lie", "two hosts of one address", "4")
def an_address_is_there_twice(cast: Cast) -> Part:
    host, twin = cast.pair()
    how = cast.chance.choice(("eth0", "lo", "second")) if cast.count < 4 else "lo"

    def do(lab: Lab) -> None:
        if how == "eth0":
            host_of(lab, host).ip("address flush dev eth0", f"address add {cast.address(twin)}/24 dev eth0")
        else:
            bits, device = ("32", "lo") if how == "lo" else ("24", "eth0")
            host_of(lab, host).ip(f"address add {cast.address(twin)}/{bits} dev {device}")

    return part(
        f"{host} has {twin}'s address on {how} too",
        do,
        "duplicate-address",
        cast.ends(host, twin, broken_at=host),
        "wrong-machine",
    )


@breaks("lie", "two hosts of one hardware address")
def a_card_is_there_twice(cast: Cast) -> Part | None:
    if cast.count > 3:
        return None
    host, twin = cast.pair()
    causes = "duplicate-mac duplicate-address"
    return part(
        f"{host}'s card has the hardware address of {twin}'s",
        lambda lab: host_of(lab, host).ip(f"link set eth0 address {card(lab, twin)}"),
        causes,
        cast.ends(host, twin),
    )


@breaks("overlap", "host: a network of containers", "4")
def containers_have_the_peers_network(cast: Cast) -> Part:
    host, name = cast.any(), cast.chance.choice(INNER)
    bits = cast.chance.choice((27, 28))
    lines = [f"link add {name} type bridge", f"link set {name} up"]
    words = f"{host}'s {name} has {cast.net4}.1/{bits}, which holds its peers' addresses"
    return part(
        words,
        ip(host, *lines, f"address add {cast.net4}.1/{bits} dev {name}"),
        "address-overlap",
        cast.silent(host),
        OBSERVED + " no-route other-network container-bridge",
    )


@breaks("overlap", "host: a tunnel", "4")
def a_tunnel_takes_the_peers(cast: Cast) -> Part:
    host, name = cast.any(), cast.chance.choice(("tun0", "wg0", "tailscale0"))
    return part(
        f"{host} sends to its peers by {name}, which leads nowhere",
        ip(
            host,
            f"tuntap add dev {name} mode tun",
            f"link set {name} up",
            f"address add 100.64.9.9/32 dev {name}",
            f"route add {cast.net4}.0/25 dev {name}",
        ),
        "address-overlap other-network",
        cast.silent(host),
        OBSERVED + " no-route interface-down",
    )


@harmless("overlap", "host: networks of containers elsewhere")
def container_networks(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))
    name, number = cast.chance.choice(INNER), cast.chance.randint(17, 31)
    net = f"172.{number}.0" if not cast.net4.startswith(f"172.{number}.") else "10.244.7"
    return part(
        f"{', '.join(hosts)}: {name} has {net}.1/16",
        ip(hosts, f"link add {name} type bridge", f"link set {name} up", f"address add {net}.1/16 dev {name}"),
    )


@harmless("overlap", "host: a bridge with the cluster's own network, unused", "4")
def a_bridge_of_the_same_network(cast: Cast) -> Part:
    host, name = cast.any(), cast.chance.choice(INNER)
    where = cast.chance.choice((f"{cast.net4}.200/30", f"{cast.net4}.129/25"))
    return part(
        f"{host}'s {name} has {where}, where no peer is",
        ip(host, f"link add {name} type bridge", f"link set {name} up", f"address add {where} dev {name}"),
    )


@harmless("differ", "network: more of them")
def more_networks(cast: Cast) -> Part:
    kind = cast.chance.choice(("eth1", "tun", "second address", "default route"))
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))

    def do(lab: Lab) -> None:
        if kind in ("eth1", "default route") and not any("eth1" in str(host.setup) for host in lab.hosts):
            lab.network("eth1", "192.168.70")
        for place, name in enumerate(hosts):
            host = host_of(lab, name)
            if kind == "tun":
                host.ip(
                    "tuntap add dev tun7 mode tun", "link set tun7 up", f"address add 100.101.0.{place + 1}/32 dev tun7"
                )
            elif kind == "second address":
                host.ip(f"address add 10.222.1.{place + 5}/24 dev eth0")
            elif kind == "default route" and "4" in cast.families:
                host.ip("route replace default via 192.168.70.1 dev eth1")

    return part(f"{', '.join(hosts)} have {kind} as well", do)


@harmless("remove", "host: its way out")
def no_default_route(cast: Cast) -> Part:
    hosts = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count))

    def do(lab: Lab) -> None:
        for name in hosts:
            for family in cast.families:
                host_of(lab, name).run("ip", f"-{family}", "route", "flush", "default")

    return part(f"{', '.join(hosts)} have no default route", do)


@harmless("lie", "neighbours and rules that are right", "4")
def written_by_hand(cast: Cast) -> Part:
    host, peer = cast.pair()
    kind = cast.chance.choice(("neighbour", "rule", "host route"))

    def do(lab: Lab) -> None:
        if kind == "neighbour":
            host_of(lab, host).ip(f"neigh replace {cast.address(peer)} lladdr {card(lab, peer)} dev eth0 nud permanent")
        elif kind == "rule":
            host_of(lab, host).ip(
                f"route add {cast.net4}.0/24 dev eth0 table 77", f"rule add to {cast.net4}.0/24 table 77"
            )
        else:
            host_of(lab, host).ip(f"route add {cast.address(peer)}/32 dev eth0")

    return part(f"{host} has a {kind} for {peer} by hand, which is right", do)
