"""Firewalls: on the hosts themselves, and between them."""

from lab.fault import TORCHRUN, Link, fault
from lab.network import PORT


@fault("rendezvous-dropped", on="first")
def rendezvous_port_dropped(lab, host):
    host.firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP")


@fault("rendezvous-rejected", on="first")
def rendezvous_port_rejected(lab, host):
    host.firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j REJECT")


@fault("rendezvous-rejected", on="first")
def rendezvous_port_reset(lab, host):
    host.firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j REJECT --reject-with tcp-reset", families="4")


@fault("rendezvous-dropped", on="first", style=TORCHRUN)
def rendezvous_port_dropped_plain(lab, host):
    host.firewall(f"INPUT -i eth0 -p tcp --dport {PORT} -j DROP")


@fault("rendezvous-dropped", on="first")
def rendezvous_port_dropped_from_one(lab, host):
    host.firewall(f"INPUT -s {lab.hosts[-1].address} -p tcp --dport {PORT} -j DROP", families="4")
    return Link(lab.hosts[-1].name, host.name)


@fault("rendezvous-dropped", on="last")
def rendezvous_port_dropped_on_the_way_out(lab, host):
    host.firewall(f"OUTPUT -o eth0 -p tcp --dport {PORT} -j DROP")
    return Link(host.name, lab.hosts[0].name)


def only(host, *allowed, way="DROP"):
    """The usual firewall: what was asked for comes back, a list of ports is open, the rest is closed."""
    host.firewall("INPUT -i lo -j ACCEPT", "INPUT -m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
    host.firewall("INPUT -p ipv6-icmp -j ACCEPT", families="6")
    host.firewall(*(f"INPUT -p tcp --dport {ports} -j ACCEPT" for ports in allowed), f"INPUT -j {way}")


@fault("data-ports-dropped", on="all")
def only_the_rendezvous_port_open(lab, host):
    for each in lab.hosts:
        only(each, PORT)


@fault("data-ports-rejected", on="all")
def only_the_rendezvous_port_open_rejecting(lab, host):
    for each in lab.hosts:
        only(each, PORT, way="REJECT")


@fault("data-ports-dropped", on="first")
def data_ports_dropped_on_the_first(lab, host):
    only(host, PORT)


@fault("data-ports-dropped", on="all")
def firewall_opens_other_ports_than_the_kernel_uses(lab, host):
    for each in lab.hosts:
        only(each, PORT, "50000:50200")


@fault("data-ports-rejected", on="first", style=TORCHRUN)
def data_ports_rejected_on_the_first_plain(lab, host):
    only(host, PORT, way="REJECT")


@fault("host-unreachable", on="last", also=("all-ports-dropped",))
def one_host_drops_all(lab, host):
    host.firewall("INPUT -i eth0 -j DROP", "OUTPUT -o eth0 -j DROP")


@fault("host-unreachable", on="first", also=("all-ports-dropped",))
def first_host_drops_all(lab, host):
    host.firewall("INPUT -i eth0 -j DROP")


@fault("data-ports-dropped", on="other")
def host_accepts_ssh_only(lab, host):
    only(host, 22)


@fault("host-unreachable", on="last", also=("arp-unanswered", "no-route", "all-ports-dropped"))
def cable_pulled_at_the_switch(lab, host):
    for other in lab.hosts:
        if other is not host:
            lab.wire_drops(host, other)
            lab.wire_drops(other, host)


@fault("rendezvous-dropped", on="first", also=("host-unreachable",))
def security_group_drops_the_rendezvous(lab, host):
    for other in lab.hosts[1:]:
        lab.wire_drops(other, host, "-p", "IPv4", "--ip-proto", "tcp", "--ip-dport", str(PORT))


@fault("data-ports-dropped", on="all")
def security_group_opens_only_the_rendezvous(lab, host):
    for source in lab.hosts:
        for other in lab.hosts:
            if source is not other:
                lab.wire_drops(source, other, "-p", "IPv4", "--ip-proto", "tcp", "--ip-dport", "30000:65535",
                               "--ip-sport", "30000:65535")  # fmt: skip


@fault("one-way", on="last")
def one_way_for_new_connections(lab, host):
    first = lab.hosts[0]
    host.firewall("INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT", f"INPUT -s {first.address} -p tcp -j DROP",
                  families="4")  # fmt: skip
    return Link(first.name, host.name)


@fault("data-ports-dropped", on="last", also=("all-ports-dropped",))
def inbound_dropped_on_the_one_that_is_called(lab, host):
    """The first host's address is the larger one here: it calls, and the last must listen."""
    lab.hosts[0].ip(f"address del {lab.hosts[0].address}/24 dev eth0", "address add 10.77.0.200/24 dev eth0")
    lab.hosts[0].ip("route replace default via 10.77.0.1")
    lab.hosts[0].addresses["4"] = "10.77.0.200"
    lab.everybody_knows()
    only(host, 22)


@fault("host-unreachable", on="last", also=("arp-unanswered", "no-route", "all-ports-dropped"))
def two_peers_cut_from_each_other(lab, host):
    before = lab.hosts[-2]
    lab.wire_drops(host, before)
    lab.wire_drops(before, host)
    return Link(before.name, host.name)
