"""Two unrelated faults at the same time."""

from lab.fault import TORCHRUN, Expected, Link, fault
from lab.faults.firewall import only
from lab.faults.limits import clock
from lab.faults.names import own_name_is_loopback
from lab.faults.ports import listens
from lab.network import PORT


def at(cause, *hosts, also=()):
    """The right answer about one of the two faults."""
    return Expected(cause, tuple(host.name for host in hosts), None, tuple(also))


@fault("port-busy", also=("clock-skew",), counts=(4,))
def port_taken_and_clock_behind(lab, host):
    listens(lab.hosts[0], PORT)
    clock(lab.hosts[2], -60)
    return [at("port-busy", lab.hosts[0]), at("clock-skew", lab.hosts[2])]


@fault("data-ports-dropped", also=("mtu-blackhole",), counts=(3,))
def data_ports_dropped_and_large_packets_lost(lab, host):
    first, _, last = lab.hosts
    only(first, PORT)
    last.firewall("OUTPUT -o eth0 -m length --length 1401:65535 -j DROP", families="4")
    return [at("data-ports-dropped", first), at("mtu-blackhole", last)]


@fault("interface-missing", also=("clock-skew",), counts=(4,))
def interface_missing_and_clock_behind(lab, host):
    lab.hosts[1].environment["GLOO_SOCKET_IFNAME"] = "ens5"
    clock(lab.hosts[3], -60)
    return [at("interface-missing", lab.hosts[1]), at("clock-skew", lab.hosts[3])]


@fault("rendezvous-dropped", also=("host-unreachable", "all-ports-dropped"), counts=(4,))
def rendezvous_dropped_and_a_peer_cut_off(lab, host):
    lab.hosts[0].firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP")
    lab.hosts[2].firewall("INPUT -i eth0 -j DROP", "OUTPUT -o eth0 -j DROP")
    return [at("rendezvous-dropped", lab.hosts[0]),
            at("host-unreachable", lab.hosts[2], also=("all-ports-dropped",))]  # fmt: skip


@fault(
    "endpoint-unresolvable", also=("data-ports-rejected",), counts=(3,), style=TORCHRUN, endpoint="name", families="46"
)
def endpoint_unknown_and_data_ports_rejected(lab, host):
    first, other, last = lab.hosts
    other.knows(*(f"{address} {each.name}" for each in (other, last) for address in each.addresses.values()))
    only(first, PORT, way="REJECT")
    return [at("endpoint-unresolvable", other), at("data-ports-rejected", first)]


@fault("open-files", also=("link-loss",), counts=(5,))
def few_files_and_packets_lost(lab, host):
    lab.hosts[1].setup.append("ulimit -n 20")
    lab.hosts[3].firewall("INPUT -i eth0 -m statistic --mode random --probability 0.3 -j DROP")
    return [at("open-files", lab.hosts[1]), at("link-loss", lab.hosts[3])]


@fault("port-busy", also=("no-route", "host-unreachable", "interface-no-address"), counts=(3,), families="6")
def port_taken_and_ipv6_off_on_one(lab, host):
    listens(lab.hosts[0], PORT)
    lab.hosts[1].sysctl("net.ipv6.conf.eth0.disable_ipv6", "1")
    six = at("no-route", lab.hosts[1], also=("host-unreachable", "interface-no-address", "interface-down"))
    return [at("port-busy", lab.hosts[0]), six]


@fault("ipv6-blackhole", also=("clock-skew",), counts=(3,), style=TORCHRUN, endpoint="name", families="46")
def ipv6_dropped_and_clock_behind(lab, host):
    lab.hosts[0].firewall("INPUT -i eth0 -p tcp -j DROP", families="6")
    clock(lab.hosts[2], -60)
    return [at("ipv6-blackhole", lab.hosts[0]), at("clock-skew", lab.hosts[2])]


@fault("interface-down", also=("interface-missing", "host-unreachable", "no-route"), counts=(4,))
def interface_down_and_interface_missing(lab, host):
    lab.hosts[1].ip("link set eth0 down")
    lab.hosts[3].environment["GLOO_SOCKET_IFNAME"] = "ib0"
    return [at("interface-down", lab.hosts[1], also=("host-unreachable", "no-route")),
            at("interface-missing", lab.hosts[3])]  # fmt: skip


@fault("few-ports", also=("mtu-blackhole",), counts=(3,))
def few_ports_and_large_packets_lost(lab, host):
    lab.hosts[0].sysctl("net.ipv4.ip_local_port_range", "50000 50002")
    lab.hosts[2].firewall("OUTPUT -o eth0 -m length --length 1401:65535 -j DROP", families="4")
    return [at("few-ports", lab.hosts[0]), at("mtu-blackhole", lab.hosts[2])]


@fault("port-busy", also=("duplicate-address",), counts=(5,))
def address_twice_and_port_taken(lab, host):
    listens(lab.hosts[0], PORT)
    lab.hosts[3].ip("address flush dev eth0", "address add 10.77.0.11/24 dev eth0")
    return [at("port-busy", lab.hosts[0]), at("duplicate-address", lab.hosts[1], lab.hosts[3])]


@fault("name-loopback", also=("clock-skew",), counts=(3,), style=TORCHRUN)
def name_is_loopback_and_clock_behind(lab, host):
    own_name_is_loopback(lab, lab.hosts[0])
    clock(lab.hosts[1], -60)
    return [at("name-loopback", lab.hosts[0]), at("clock-skew", lab.hosts[1])]


@fault("data-ports-dropped", also=("host-unreachable", "all-ports-dropped", "no-route"), counts=(4,))
def link_cut_and_data_ports_dropped(lab, host):
    _, second, _, last = lab.hosts
    lab.wire_drops(second, last)
    lab.wire_drops(last, second)
    only(lab.hosts[0], PORT)
    cut = Expected("host-unreachable", (), Link(second.name, last.name), ("all-ports-dropped", "no-route"))
    return [at("data-ports-dropped", lab.hosts[0]), cut]


@fault(
    "interface-down", also=("rendezvous-dropped", "interface-no-address", "other-network"), counts=(3,), families="46"
)
def second_interface_down_and_rendezvous_dropped(lab, host):
    lab.network("eth1", "192.168.60")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1"
    lab.hosts[2].ip("link set eth1 down")
    lab.hosts[0].firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP")
    return [at("interface-down", lab.hosts[2], also=("interface-no-address", "other-network")),
            at("rendezvous-dropped", lab.hosts[0])]  # fmt: skip
