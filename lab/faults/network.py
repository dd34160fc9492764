"""Faults in interfaces, addresses and routes."""

from lab.fault import TORCHRUN, Link, fault
from lab.network import must


@fault("link-local", on="last", style=TORCHRUN, families="46", also=("family-mixed", "interface-no-address"))
def interface_with_link_local_only(lab, host):
    # Different interface numbers, as on real machines: a link-local address is sent together with this number.
    host.ip("link add spare0 type bridge")
    lab.network("eth1", "", "")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1"
    return [each.name for each in lab.hosts]


@fault("no-route", on="last", families="6", also=("host-unreachable", "interface-no-address", "family-mixed"))
def ipv6_switched_off_on_one(lab, host):
    host.sysctl("net.ipv6.conf.eth0.disable_ipv6", "1")


@fault("interface-missing", on="any")
def interface_named_that_is_not_there(lab, host):
    host.environment["GLOO_SOCKET_IFNAME"] = "eth9"


@fault("interface-no-address", on="any", also=("interface-down", "link-local"))
def interface_named_without_address(lab, host):
    host.ip("link add ib0 type bridge", "link set ib0 up")
    host.environment["GLOO_SOCKET_IFNAME"] = "ib0"


@fault("interface-down", on="last", also=("interface-no-address", "other-network", "host-unreachable"))
def second_interface_named_but_down(lab, host):
    lab.network("eth1", "192.168.60")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1"
    host.ip("link set eth1 down")


@fault("other-network", on="other", also=("container-bridge",))
def docker_bridge_named_as_interface(lab, host):
    host.ip("link add docker0 type bridge", "link set docker0 up", "address add 172.17.0.1/16 dev docker0")
    host.environment["GLOO_SOCKET_IFNAME"] = "docker0"


@fault("interface-loopback", on="all")
def loopback_named_as_interface(lab, host):
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "lo"


@fault("no-route", on="last", also=("other-network", "host-unreachable"))
def other_subnet_without_a_route(lab, host):
    host.ip(f"address del {host.address}/24 dev eth0", "address add 10.88.0.5/24 dev eth0")


@fault("host-unreachable", on="last", also=("no-route", "interface-down"))
def interface_down(lab, host):
    host.ip("link set eth0 down")


@fault("no-route", on="last", also=("host-unreachable",))
def peers_are_blackholed_by_a_route(lab, host):
    host.ip("route add unreachable 10.77.0.10/32")


@fault("duplicate-address", on="last")
def two_hosts_of_one_address(lab, host):
    host.ip("address flush dev eth0", "address add 10.77.0.10/24 dev eth0")
    return [lab.hosts[0].name, host.name]


@fault("other-network", on="all", style=TORCHRUN)
def interface_of_a_vpn_that_leads_nowhere(lab, host):
    for place, each in enumerate(lab.hosts):
        each.ip("tuntap add dev tun0 mode tun", "link set tun0 up", f"address add 10.8.{place}.2/32 dev tun0")
        each.environment["GLOO_SOCKET_IFNAME"] = "tun0"


@fault("no-route", on="last", counts=(3,), also=("host-unreachable", "all-ports-dropped"))
def strict_reverse_path_and_another_way_back(lab, host):
    lab.network("eth1", "192.168.60")
    host.sysctl("net.ipv4.conf.all.rp_filter", "1")
    host.sysctl("net.ipv4.conf.eth0.rp_filter", "1")
    host.ip(*(f"route add {other.address}/32 dev eth1" for other in lab.hosts if other is not host))


@fault("no-route", on="last", counts=(4,), also=("host-unreachable",))
def policy_rule_leads_nowhere(lab, host):
    host.ip("route add blackhole default table 100", f"rule add from {host.address} table 100")


@fault("no-route", on="other", counts=(3,), also=("host-unreachable", "all-ports-dropped", "one-way"))
def route_to_one_peer_is_prohibited(lab, host):
    host.ip(f"route add prohibit {lab.hosts[0].address}/32")
    return Link(host.name, lab.hosts[0].name)


def routed(lab, host, mtu):
    """Move the host into a separate network behind a router (the switch) with this packet size."""
    place, switch = lab.hosts.index(host), ["ip", "-netns", lab.switch]
    lines = ["link add br-far type bridge", "link set br-far up", f"link set eth0-{place} master br-far mtu {mtu}"]
    lines += [f"link set br-far mtu {mtu}", "address add 10.99.0.1/24 dev br-far"]
    must(*switch, "-batch", "-", stdin="\n".join(lines))
    must("ip", "netns", "exec", lab.switch, "sysctl", "-qw", "net.ipv4.ip_forward=1")
    host.ip("address flush dev eth0", "address add 10.99.0.5/24 dev eth0", "route replace default via 10.99.0.1",
            "link set eth0 gso_max_segs 1")  # fmt: skip
    host.addresses["4"] = "10.99.0.5"
    lab.everybody_knows()


@fault("no-route", on="last", counts=(3,))
def peer_behind_a_router_that_works(lab, host):
    routed(lab, host, 1500)


@fault("no-route", on="last", counts=(4,), also=("host-unreachable", "all-ports-dropped", "netmask"))
def netmask_leaves_half_of_the_hosts_outside(lab, host):
    host.ip(f"address del {host.address}/24 dev eth0", f"address add {host.address}/31 dev eth0")


@fault("duplicate-mac", on="last", counts=(3,), also=("duplicate-address",))
def two_cards_of_one_hardware_address(lab, host):
    twin = lab.hosts[1]
    card = must("ip", "-netns", twin.space, "-o", "link", "show", "eth0").split("link/ether ")[1].split()[0]
    host.ip(f"link set eth0 address {card}")
    for other in lab.hosts:
        if len(lab.hosts) > 3 and other not in (host, twin):
            other.ip(f"neigh replace {host.address} lladdr {card} dev eth0 nud permanent")
    return [twin.name, host.name]


@fault("host-unreachable", on="last", counts=(3,), also=("arp-unanswered", "all-ports-dropped", "no-route"))
def card_answers_no_arp(lab, host):
    host.ip("link set eth0 arp off")


@fault("host-unreachable", on="other", counts=(4,), also=("arp-wrong", "all-ports-dropped", "rendezvous-dropped"))
def neighbour_entry_of_the_first_is_stale(lab, host):
    host.ip(f"neigh replace {lab.hosts[0].address} lladdr 02:00:00:00:00:99 dev eth0 nud permanent")
    return Link(host.name, lab.hosts[0].name)


@fault(
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


@fault("other-network", on="first", counts=(2, 4))
def another_address_comes_first_on_the_interface(lab, host):
    host.ip(f"address del {host.address}/24 dev eth0", "address add 10.200.0.5/24 dev eth0",
            f"address add {host.address}/24 dev eth0", "route replace default via 10.77.0.1")  # fmt: skip


@fault("no-route", on="last", counts=(3,), also=("other-network", "host-unreachable"))
def bridge_took_the_interface_and_has_a_wrong_address(lab, host):
    host.ip("link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0",
            "address add 10.77.9.9/24 dev br0")  # fmt: skip


@fault("no-route", on="any", counts=(2, 3))
def address_is_on_a_bridge(lab, host):
    host.ip("link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0",
            f"address add {host.address}/24 dev br0", "route add default via 10.77.0.1")  # fmt: skip


@fault("duplicate-address", on="other", counts=(2, 4), also=("wrong-machine", "endpoint-twice"))
def address_of_the_first_is_on_a_peers_loopback_too(lab, host):
    host.ip(f"address add {lab.hosts[0].address}/32 dev lo")
    return [lab.hosts[0].name, host.name]


@fault("interface-down", on="first", counts=(3,), also=("loopback-down", "host-unreachable"))
def loopback_is_down(lab, host):
    host.ip("link set lo down")


@fault("no-route", on="any", families="6", counts=(3,))
def ipv6_address_is_deprecated(lab, host):
    host.ip(f"address change {host.addresses['6']}/64 dev eth0 preferred_lft 0")


@fault("no-route", on="any", families="6", counts=(3,))
def ipv6_has_a_temporary_address_too(lab, host):
    host.ip("address add fd77::dead:beef/64 dev eth0 nodad")


@fault("no-route", on="any", counts=(3,))
def two_ways_out(lab, host):
    lab.network("eth1", "192.168.60")
    host.ip("route replace default via 10.77.0.1 metric 200", "route add default via 192.168.60.1 dev eth1 metric 50")


@fault("other-network", on="any", style=TORCHRUN, counts=(3,))
def interfaces_differ_and_both_networks_are_shared(lab, host):
    lab.network("eth1", "192.168.60")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1" if each is host else "eth0"
