"""The primitives delay, limit, lose, cut: a path that carries data late, slowly, incompletely, or not for long."""

from __future__ import annotations

from lab.drawn.part import Cast, Part, breaks, firewall, harmless, host_of, ip, part
from lab.network import Lab

LOSS, SLOW, CUT = "link-loss", "link-slow", "connection-cut"
DELAY, SIZE = "link-delay link-slow", "mtu-blackhole"


@breaks("delay", "host")
def a_cable_is_late(cast: Cast) -> Part:
    host, seconds = cast.any(), cast.chance.choice((0.3, 0.6, 1.0, 1.6, 2.5))
    dropped = "host-unreachable" if seconds > 1 else ""
    return part(
        f"what passes {host}'s cable is {seconds:g} s late",
        lambda lab: lab.bad_wire(host_of(lab, host), delay_s=seconds),
        DELAY,
        cast.silent(host),
        dropped,
    )


@breaks("lose", "host or direction")
def packets_are_lost(cast: Cast) -> Part:
    host, way = cast.any(), cast.chance.choice(("in", "out"))
    share = cast.chance.choice((0.1, 0.2, 0.35, 0.5))
    chain = {"in": "INPUT -i eth0", "out": "OUTPUT -o eth0"}[way]
    rule = f"{chain} -m statistic --mode random --probability {share} -j DROP"
    return part(
        f"{share:.0%} of the packets on {host}'s way {way} are lost",
        firewall(host, rule, families=cast.families),
        LOSS,
        cast.silent(host),
        SLOW,
    )


@breaks("lose", "pair", "4")
def packets_of_a_pair_are_lost(cast: Cast) -> Part:
    host, peer = cast.pair()
    share = cast.chance.choice((0.15, 0.3, 0.5))
    rule = f"INPUT -s {cast.address(peer)} -m statistic --mode random --probability {share} -j DROP"
    words = f"{share:.0%} of the packets from {peer} are lost at {host}"
    return part(words, firewall(host, rule), LOSS, cast.ends(host, peer, broken_at=host), SLOW)


@breaks("damage", "host")
def a_cable_damages(cast: Cast) -> Part:
    host, share = cast.any(), cast.chance.choice((0.1, 0.25))
    return part(
        f"{host}'s cable damages {share:.0%} of the packets",
        lambda lab: lab.bad_wire(host_of(lab, host), damaged=share),
        LOSS,
        cast.silent(host),
        SLOW,
    )


@breaks("limit", "host: rate")
def a_slow_card(cast: Cast) -> Part:
    host, rate = cast.any(), cast.chance.choice(("1mbit", "3mbit", "8mbit"))
    way = cast.chance.choice(("in", "out", "both"))
    return part(
        f"{host} has {rate} on the way {way}",
        lambda lab: lab.rate(host_of(lab, host), rate, way),
        SLOW,
        cast.silent(host),
        LOSS,
    )


@breaks("limit", "pair: rate")
def a_slow_link(cast: Cast) -> Part:
    source, target = cast.pair()
    rate = cast.chance.choice(("2mbit", "6mbit"))
    return part(
        f"{source} sends {rate} to {target}",
        lambda lab: lab.rate_between(host_of(lab, source), host_of(lab, target), "1gbit", rate),
        SLOW,
        cast.ends(source, target, broken_at=source),
        LOSS,
    )


@breaks("cut", "host: after a number of bytes", "4")
def connections_are_cut(cast: Cast) -> Part:
    host, size = cast.any(), cast.chance.choice((100_000, 500_000, 1_500_000))
    target = cast.chance.choice(("REJECT --reject-with tcp-reset", "DROP"))
    count = f"-m connbytes --connbytes {size}: --connbytes-dir both --connbytes-mode bytes"
    how = "resets" if "tcp-reset" in target else "drops"
    return part(
        f"{host} {how} connections that have carried {size} bytes",
        firewall(host, f"INPUT -i eth0 -p tcp {count} -j {target}"),
        CUT,
        cast.silent(host),
    )


@breaks("cut", "pair: after a number of bytes", "4")
def a_pair_is_cut(cast: Cast) -> Part:
    host, peer = cast.pair()
    size = cast.chance.choice((150_000, 1_000_000))

    def do(lab: Lab) -> None:
        count = f"-m connbytes --connbytes {size}: --connbytes-dir both --connbytes-mode bytes"
        rule = f"INPUT -s {cast.address(peer)} -p tcp {count} -j REJECT --reject-with tcp-reset"
        host_of(lab, host).firewall(rule, families="4")

    words = f"{host} resets connections with {peer} that have carried {size} bytes"
    return part(words, do, CUT, cast.ends(host, peer, broken_at=host))


@breaks("drop", "host or pair: large packets")
def large_packets_vanish(cast: Cast) -> Part:
    host, least = cast.any(), cast.chance.choice((600, 1000, 1300, 1440))
    way = cast.chance.choice(("INPUT -i eth0", "OUTPUT -o eth0"))
    peer = cast.any(but=[host]) if cast.count > 2 and cast.families == "4" and cast.chance.random() < 0.4 else ""
    match = f" {'-s' if 'INPUT' in way else '-d'} {cast.address(peer)}" if peer else ""
    rule = f"{way}{match} -m length --length {least}:65535 -j DROP"
    subjects = cast.ends(host, peer, broken_at=host) if peer else cast.silent(host)
    return part(
        f"packets from {least} bytes vanish at {host} {way[:6]} {peer}",
        firewall(host, rule, families=cast.families),
        SIZE,
        subjects,
    )


@breaks("limit", "host: new connections", "4")
def new_connections_are_rationed(cast: Cast) -> Part:
    host = cast.any()
    rule = cast.chance.choice(
        (
            "-m connlimit --connlimit-above 2 --connlimit-mask 0",
            "-m hashlimit --hashlimit-name few --hashlimit-above 4/min --hashlimit-burst 2",
        )
    )
    seen = "data-ports-dropped one-way all-ports-dropped link-loss"
    return part(
        f"{host} lets few new connections in",
        firewall(host, f"INPUT -i eth0 -p tcp --syn {rule} -j DROP"),
        "connections-limited",
        cast.silent(host),
        seen,
    )


@harmless("delay", "network")
def a_little_late(cast: Cast) -> Part:
    host, seconds = cast.any(), cast.chance.choice((0.002, 0.01, 0.02))
    return part(
        f"what passes {host}'s cable is {1000 * seconds:g} ms late",
        lambda lab: lab.bad_wire(host_of(lab, host), delay_s=seconds),
    )


@harmless("limit", "host: rate")
def fast_enough(cast: Cast) -> Part:
    rate = "1gbit"

    def do(lab: Lab) -> None:
        for host in lab.hosts:
            lab.rate(host, rate)

    return part(f"every host has {rate}", do)


@harmless("lie", "host: packets twice or swapped")
def packets_come_twice(cast: Cast) -> Part:
    host = cast.any()
    how = cast.chance.choice(({"twice": 0.3}, {"swapped": 0.02}))
    return part(f"{host}'s cable: {how}", lambda lab: lab.bad_wire(host_of(lab, host), **how))


@harmless("differ", "host: size of packets")
def packet_sizes_differ(cast: Cast) -> Part:
    hosts, size = cast.chance.sample(cast.hosts, cast.chance.randint(1, cast.count)), cast.chance.choice((1280, 1400))
    return part(f"{', '.join(hosts)} have an MTU of {size}", ip(hosts, f"link set eth0 mtu {size}"))


@harmless("differ", "setting: TCP")
def tcp_settings_differ(cast: Cast) -> Part:
    host = cast.any()
    name, value = cast.chance.choice(
        (
            ("tcp_timestamps", "0"),
            ("tcp_sack", "0"),
            ("tcp_window_scaling", "0"),
            ("tcp_ecn", "1"),
            ("tcp_rmem", "4096 16384 65536"),
            ("tcp_wmem", "4096 16384 65536"),
            ("tcp_fin_timeout", "5"),
            ("ip_local_port_range", "20000 60000"),
            ("tcp_slow_start_after_idle", "0"),
            ("tcp_keepalive_time", "60"),
        )
    )
    return part(f"{host} has {name} = {value}", lambda lab: host_of(lab, host).sysctl(f"net.ipv4.{name}", value))
