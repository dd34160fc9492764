"""IPv6 and both families at once."""

from lab.fault import TORCHRUN, fault
from lab.faults.firewall import only
from lab.network import PORT


@fault("rendezvous-dropped", on="first", families="6")
def rendezvous_port_dropped_v6(lab, host):
    host.firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP", families="6")


@fault("data-ports-dropped", on="all", families="6")
def only_the_rendezvous_port_open_v6(lab, host):
    for each in lab.hosts:
        only(each, PORT)


@fault("ipv6-blackhole", on="first", style=TORCHRUN, endpoint="name", families="46")
def ipv6_dropped_name_has_both(lab, host):
    host.firewall("INPUT -i eth0 -p tcp -j DROP", families="6")


@fault("ipv6-blackhole", on="all", families="46")
def ipv6_dropped_but_ipv4_used(lab, host):
    for each in lab.hosts:
        each.firewall("INPUT -i eth0 -p tcp -j DROP", families="6")


@fault("family-mixed", on="last", style=TORCHRUN, families="46")
def names_of_different_families(lab, host):
    first, last = lab.hosts[0], lab.hosts[-1]
    for each in lab.hosts:
        lines = [f"{other.addresses['4']} {other.name}" for other in lab.hosts if other is not last]
        each.knows(*lines, f"{last.addresses['6']} {last.name}")
    assert first is not last


@fault("link-local", on="last", style=TORCHRUN, families="46", also=("family-mixed", "interface-no-address"))
def interface_with_link_local_only(lab, host):
    # Another number of the interface, as machines differ: a link-local address is sent with it.
    host.ip("link add spare0 type bridge")
    lab.network("eth1", "", "")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1"
    return [each.name for each in lab.hosts]


@fault("no-route", on="last", families="6", also=("host-unreachable", "interface-no-address", "family-mixed"))
def ipv6_switched_off_on_one(lab, host):
    host.sysctl("net.ipv6.conf.eth0.disable_ipv6", "1")
