"""Interfaces and routes."""

from lab.fault import TORCHRUN, fault


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
