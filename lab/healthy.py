"""Clusters with peculiarities that are healthy: every alarm on one of them is wrong."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from itertools import cycle

from lab.fault import MUSTER, TORCHRUN
from lab.faults.firewall import only
from lab.faults.limits import clock
from lab.faults.names import book
from lab.faults.network import routed
from lab.network import PORT

OPEN_RANGE = "50000 50400"


@dataclass(frozen=True)
class Healthy:
    """One healthy cluster: the number of hosts, their address families, its peculiarity, how the run is started."""

    count: int
    families: str
    peculiar: Callable
    style: str
    endpoint: str = "address"
    rendezvous: str = "c10d"

    @property
    def name(self):
        """Its name on the score page."""
        return f"{self.peculiar.__name__}/{self.count}/v{self.families}/{self.style}"


def nothing(lab):
    """Change nothing."""


def docker_and_bridges(lab):
    for host in lab.hosts:
        host.ip("link add docker0 type bridge", "link set docker0 up", "address add 172.17.0.1/16 dev docker0")
        host.ip("link add br-9f3c type bridge", "link set br-9f3c up", "address add 172.18.0.1/16 dev br-9f3c")


def vpn_beside(lab):
    for place, host in enumerate(lab.hosts):
        host.ip("tuntap add dev tun0 mode tun", "link set tun0 up", f"address add 100.64.0.{place + 1}/32 dev tun0")


def second_network(lab):
    lab.network("eth1", "192.168.50", "fd50" if "6" in lab.families else "")


def second_network_on_some(lab):
    for host in lab.hosts[1:]:
        host.ip("link add mgmt0 type bridge", "link set mgmt0 up", "address add 192.168.9.9/24 dev mgmt0")


def firewall_with_the_ports_open(lab):
    for host in lab.hosts:
        host.sysctl("net.ipv4.ip_local_port_range", OPEN_RANGE)
        only(host, 22, PORT, OPEN_RANGE.replace(" ", ":"))


def ping_blocked(lab):
    for host in lab.hosts:
        host.firewall("INPUT -p icmp -j DROP", families="4")


def strangers_kept_out(lab):
    for host in lab.hosts:
        if "4" in lab.families:
            host.firewall("INPUT -s 10.77.0.0/24 -j ACCEPT", "INPUT -i lo -j ACCEPT", "INPUT -j DROP", families="4")


def clocks_apart(lab):
    for place, host in enumerate(lab.hosts):
        clock(host, (place % 2) * 1.5)


def names_unknown(lab):
    lab.everybody_knows([])


def names_are_loopback(lab):
    for host in lab.hosts:
        host.knows(*book(lab, without=(host,), instead=(f"127.0.1.1 {host.name}",)))


def jumbo_everywhere(lab):
    for place, host in enumerate(lab.hosts):
        host.ip("link set eth0 mtu 9000")
        lab.port(place, "mtu 9000")


def small_mtu_everywhere(lab):
    for host in lab.hosts:
        host.ip("link set eth0 mtu 1400")


def few_open_files(lab):
    for host in lab.hosts:
        host.setup.append("ulimit -n 1024")


def port_of_another_service(lab):
    for host in lab.hosts:
        host.start("python3", "-c", "import socket, time; s = socket.create_server(('', 8888)); time.sleep(999)")


def busy_ports_on_loopback_only(lab):
    for host in lab.hosts:
        host.firewall("INPUT ! -i lo -p tcp --dport 6000:6100 -j REJECT", families="4")


def addresses_on_bridges(lab):
    """As on a host of virtual machines: the card is a port of a bridge, and the bridge has the addresses."""
    for host in lab.hosts:
        host.ip("link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0")
        own = host.addresses
        host.ip(*([f"address add {own['4']}/24 dev br0", "route add default via 10.77.0.1"] if "4" in own else []),
                *([f"address add {own['6']}/64 dev br0 nodad"] if "6" in own else []))  # fmt: skip


def one_behind_a_router(lab):
    routed(lab, lab.hosts[-1], 1500)


def two_ways_out(lab):
    lab.network("eth1", "192.168.60")
    for host in lab.hosts[1:]:
        host.ip("route replace default via 192.168.60.1 dev eth1")


PECULIAR = (nothing, docker_and_bridges, vpn_beside, second_network, second_network_on_some,
            firewall_with_the_ports_open, ping_blocked, strangers_kept_out, clocks_apart, jumbo_everywhere,
            small_mtu_everywhere, few_open_files, port_of_another_service, busy_ports_on_loopback_only)  # fmt: skip
GIVEN_ADDRESSES_ONLY = (names_unknown, names_are_loopback)
COUNTS = (2, 3, 4, 5, 6, 8, 12, 16)


def clusters():
    """At least a hundred clusters: each peculiarity with each family, sizes in turn, both ways to start a run."""
    sizes, made = cycle(COUNTS), []
    for peculiar in PECULIAR:
        for families in ("4", "6", "46"):
            made += [Healthy(next(sizes), families, peculiar, style) for style in (MUSTER, TORCHRUN)]
    for peculiar in GIVEN_ADDRESSES_ONLY:
        made += [Healthy(next(sizes), families, peculiar, MUSTER) for families in ("4", "6", "46")]
    made += [Healthy(count, "4", nothing, MUSTER) for count in COUNTS]
    made += [Healthy(count, "4", peculiar, MUSTER) for peculiar in (one_behind_a_router, two_ways_out)
             for count in (2, 3)]  # fmt: skip
    made += [Healthy(next(sizes), families, addresses_on_bridges, MUSTER) for families in ("4", "6", "46")]
    made += [Healthy(count, families, nothing, TORCHRUN, "name", way) for count in (2, 5) for families in ("4", "6")
             for way in ("c10d", "static")]  # fmt: skip
    return made
