"""Routes, cards and wires, written when the rules of preflight stood."""

from lab.fault import TORCHRUN, Link, later
from lab.network import must


@later("no-route", on="last", counts=(3,), also=("host-unreachable", "all-ports-dropped"))
def strict_reverse_path_and_another_way_back(lab, host):
    lab.network("eth1", "192.168.60")
    host.sysctl("net.ipv4.conf.all.rp_filter", "1")
    host.sysctl("net.ipv4.conf.eth0.rp_filter", "1")
    host.ip(*(f"route add {other.address}/32 dev eth1" for other in lab.hosts if other is not host))


@later("no-route", on="last", counts=(4,), also=("host-unreachable",))
def policy_rule_leads_nowhere(lab, host):
    host.ip("route add blackhole default table 100", f"rule add from {host.address} table 100")


@later("no-route", on="other", counts=(3,), also=("host-unreachable", "all-ports-dropped", "one-way"))
def route_to_one_peer_is_prohibited(lab, host):
    host.ip(f"route add prohibit {lab.hosts[0].address}/32")
    return Link(host.name, lab.hosts[0].name)


def routed(lab, host, mtu):
    """The host is in a network of its own, behind a router (the switch) with this packet size."""
    place, switch = lab.hosts.index(host), ["ip", "-netns", lab.switch]
    lines = ["link add br-far type bridge", "link set br-far up", f"link set eth0-{place} master br-far mtu {mtu}"]
    lines += [f"link set br-far mtu {mtu}", "address add 10.99.0.1/24 dev br-far"]
    must(*switch, "-batch", "-", stdin="\n".join(lines))
    must("ip", "netns", "exec", lab.switch, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    host.ip("address flush dev eth0", "address add 10.99.0.5/24 dev eth0", "route replace default via 10.99.0.1",
            "link set eth0 gso_max_segs 1")  # fmt: skip
    host.addresses["4"] = "10.99.0.5"
    lab.everybody_knows()


@later("mtu-blackhole", on="last", counts=(3,))
def router_with_small_packets_says_nothing(lab, host):
    routed(lab, host, 1200)
    for each in lab.hosts:
        each.ip("link set eth0 gso_max_segs 1")
    must("ip", "netns", "exec", lab.switch, "iptables", "-w", "-A", "OUTPUT", "-p", "icmp", "-j", "DROP")


@later("no-route", on="last", counts=(3,))
def peer_behind_a_router_that_works(lab, host):
    routed(lab, host, 1500)


@later("link-slow", on="last", counts=(3,), also=("link-loss", "link-delay"))
def wire_takes_300_ms(lab, host):
    lab.bad_wire(host, delay_s=0.3)


@later("link-loss", on="any", counts=(3,))
def wire_doubles_every_packet(lab, host):
    lab.bad_wire(host, twice=1.0)


@later("link-loss", on="last", counts=(3,), also=("link-slow",))
def wire_swaps_a_third_of_the_packets(lab, host):
    lab.bad_wire(host, swapped=0.3)


@later("link-loss", on="any", counts=(4,), also=("link-slow",))
def wire_damages_a_tenth_of_the_packets(lab, host):
    lab.bad_wire(host, damaged=0.1)


@later("link-loss", on="last", counts=(3,), also=("host-unreachable", "all-ports-dropped"))
def cable_flaps(lab, host):
    port = f"eth0-{lab.hosts.index(host)}"
    flap = f"while :; do ip link set {port} down; sleep 1.5; ip link set {port} up; sleep 1; done"
    host.start("nsenter", f"--net=/run/netns/{lab.switch}", "sh", "-c", flap)


@later("no-route", on="last", counts=(4,), also=("host-unreachable", "all-ports-dropped", "netmask"))
def netmask_leaves_half_of_the_hosts_outside(lab, host):
    host.ip(f"address del {host.address}/24 dev eth0", f"address add {host.address}/31 dev eth0")


@later("duplicate-mac", on="last", counts=(3,), also=("duplicate-address",))
def two_cards_of_one_hardware_address(lab, host):
    twin = lab.hosts[1]
    card = must("ip", "-netns", twin.space, "-o", "link", "show", "eth0").split("link/ether ")[1].split()[0]
    host.ip(f"link set eth0 address {card}")
    for other in lab.hosts:
        if len(lab.hosts) > 3 and other not in (host, twin):
            other.ip(f"neigh replace {host.address} lladdr {card} dev eth0 nud permanent")
    return [twin.name, host.name]


@later("host-unreachable", on="last", counts=(3,), also=("arp-unanswered", "all-ports-dropped", "no-route"))
def card_answers_no_arp(lab, host):
    host.ip("link set eth0 arp off")


@later("host-unreachable", on="other", counts=(4,), also=("arp-wrong", "all-ports-dropped", "rendezvous-dropped"))
def neighbour_entry_of_the_first_is_stale(lab, host):
    host.ip(f"neigh replace {lab.hosts[0].address} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
    return Link(host.name, lab.hosts[0].name)


@later(
    "other-network",
    on="first",
    style=TORCHRUN,
    counts=(3,),
    also=("arp-unanswered", "host-unreachable", "data-ports-dropped"),
)
def second_network_of_the_first_is_another_vlan(lab, host):
    lab.network("eth1", "192.168.60")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1"
    lines = [
        "link add br-other type bridge",
        "link set br-other up",
        f"link set eth1-{lab.hosts.index(host)} master br-other",
    ]
    must("ip", "-netns", lab.switch, "-batch", "-", stdin="\n".join(lines))
