"""Firewalls on the hosts themselves and between them, for both address families."""

from lab.fault import TORCHRUN, Link, fault
from lab.faults.ports import listens
from lab.network import PORT, must


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
    """The usual firewall: answers come back, the listed ports are open, everything else is closed."""
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
    """The first host has the larger address here: it connects, and the last host must listen."""
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


DATA = "30000:65535"


@fault("all-ports-dropped", on="first", families="46", counts=(4,), also=("host-unreachable", "rendezvous-dropped"))
def input_policy_is_drop(lab, host):
    host.firewall("INPUT -i lo -j ACCEPT", "INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT")
    for table in ("iptables", "ip6tables"):
        must("ip", "netns", "exec", host.space, table, "-w", "-P", "INPUT", "DROP")


@fault("data-ports-dropped", on="first", counts=(5,))
def raw_table_drops_the_data_ports(lab, host):
    host.firewall(f"PREROUTING -t raw -i eth0 -p tcp --syn --dport {DATA} -j DROP")


@fault("data-ports-dropped", on="first", counts=(3,), also=("link-loss", "all-ports-dropped", "rendezvous-dropped"))
def new_connections_are_rationed(lab, host):
    host.firewall("INPUT -i eth0 -p tcp --syn -m limit --limit 6/minute --limit-burst 2 -j ACCEPT",
                  "INPUT -i eth0 -p tcp --syn -j DROP")  # fmt: skip


@fault("wrong-machine", on="first", counts=(3,), also=("data-ports-dropped",))
def data_ports_go_to_a_proxy(lab, host):
    listens(host, 8080)
    host.firewall(f"PREROUTING -t nat -i eth0 -p tcp --dport {DATA} -j REDIRECT --to-port 8080", families="4")


@fault("connection-cut", on="any", counts=(2,), also=("mtu-blackhole", "link-loss"))
def traffic_is_cut_after_a_megabyte(lab, host):
    host.firewall("INPUT -i eth0 -m quota --quota 1500000 -j ACCEPT", "INPUT -i eth0 -j DROP", families="4")


@fault("rendezvous-dropped", on="first", counts=(3,), also=("all-ports-dropped", "host-unreachable"))
def low_source_ports_are_dropped_and_a_peer_uses_them(lab, host):
    lab.hosts[-1].sysctl("net.ipv4.ip_local_port_range", "10000 20000")
    host.firewall("INPUT -i eth0 -p tcp --sport 1024:30000 -j DROP")
    return Link(lab.hosts[-1].name, host.name)


@fault("host-unreachable", on="last", counts=(4,), also=("all-ports-dropped", "one-way"))
def wire_loses_one_direction_of_one_link(lab, host):
    before = lab.hosts[1]
    lab.wire_drops(before, host)
    return Link(before.name, host.name)


@fault("link-slow", on="last", counts=(3,), also=("link-loss",))
def segments_are_clamped_to_nothing(lab, host):
    for each in lab.hosts:
        each.firewall("OUTPUT -t mangle -o eth0 -p tcp --syn -j TCPMSS --set-mss 60", families="4")
    return [each.name for each in lab.hosts]


@fault("rendezvous-dropped", on="first", style=TORCHRUN, families="6", counts=(4,))
def rendezvous_dropped_in_the_mangle_table_v6(lab, host):
    host.firewall(f"PREROUTING -t mangle -i eth0 -p tcp --dport {PORT} -j DROP", families="6")
