"""Firewalls, written when the rules of preflight stood."""

from lab.fault import TORCHRUN, Link, later
from lab.faults.ports import listens
from lab.network import PORT, must

DATA = "30000:65535"


@later("all-ports-dropped", on="first", families="46", counts=(4,), also=("host-unreachable", "rendezvous-dropped"))
def input_policy_is_drop(lab, host):
    host.firewall("INPUT -i lo -j ACCEPT", "INPUT -m conntrack --ctstate ESTABLISHED -j ACCEPT")
    for table in ("iptables", "ip6tables"):
        must("ip", "netns", "exec", host.space, table, "-w", "-P", "INPUT", "DROP")


@later("data-ports-dropped", on="first", counts=(5,))
def raw_table_drops_the_data_ports(lab, host):
    host.firewall(f"PREROUTING -t raw -i eth0 -p tcp --syn --dport {DATA} -j DROP")


@later("data-ports-dropped", on="first", counts=(3,), also=("link-loss", "all-ports-dropped", "rendezvous-dropped"))
def new_connections_are_rationed(lab, host):
    host.firewall("INPUT -i eth0 -p tcp --syn -m limit --limit 6/minute --limit-burst 2 -j ACCEPT",
                  "INPUT -i eth0 -p tcp --syn -j DROP")  # fmt: skip


@later("wrong-machine", on="first", counts=(3,), also=("data-ports-dropped",))
def data_ports_go_to_a_proxy(lab, host):
    listens(host, 8080)
    host.firewall(f"PREROUTING -t nat -i eth0 -p tcp --dport {DATA} -j REDIRECT --to-port 8080", families="4")


@later("connection-cut", on="any", counts=(2,), also=("mtu-blackhole", "link-loss"))
def traffic_is_cut_after_a_megabyte(lab, host):
    host.firewall("INPUT -i eth0 -m quota --quota 1500000 -j ACCEPT", "INPUT -i eth0 -j DROP", families="4")


@later("rendezvous-dropped", on="first", counts=(3,), also=("all-ports-dropped", "host-unreachable"))
def low_source_ports_are_dropped_and_a_peer_uses_them(lab, host):
    lab.hosts[-1].sysctl("net.ipv4.ip_local_port_range", "10000 20000")
    host.firewall("INPUT -i eth0 -p tcp --sport 1024:30000 -j DROP")
    return Link(lab.hosts[-1].name, host.name)


@later("host-unreachable", on="last", counts=(4,), also=("all-ports-dropped", "one-way"))
def wire_loses_one_direction_of_one_link(lab, host):
    before = lab.hosts[1]
    lab.wire_drops(before, host)
    return Link(before.name, host.name)


@later("link-slow", on="last", counts=(3,), also=("link-loss",))
def segments_are_clamped_to_nothing(lab, host):
    for each in lab.hosts:
        each.firewall("OUTPUT -t mangle -o eth0 -p tcp --syn -j TCPMSS --set-mss 60", families="4")
    return [each.name for each in lab.hosts]


@later("rendezvous-dropped", on="first", style=TORCHRUN, families="6", counts=(4,))
def rendezvous_dropped_in_the_mangle_table_v6(lab, host):
    host.firewall(f"PREROUTING -t mangle -i eth0 -p tcp --dport {PORT} -j DROP", families="6")
