"""Links that carry only part of the data: packet sizes, losses, rates."""

from lab.fault import fault
from lab.faults.network import routed
from lab.network import must


@fault("mtu-blackhole", on="last", counts=(3,))
def router_with_small_packets_says_nothing(lab, host):
    routed(lab, host, 1200)
    for each in lab.hosts:
        each.ip("link set eth0 gso_max_segs 1")
    must("ip", "netns", "exec", lab.switch, "iptables", "-w", "-A", "OUTPUT", "-p", "icmp", "-j", "DROP")


@fault("link-slow", on="last", counts=(3,), also=("link-loss", "link-delay"))
def wire_takes_300_ms(lab, host):
    lab.bad_wire(host, delay_s=0.3)


@fault("link-loss", on="any", counts=(3,))
def wire_doubles_every_packet(lab, host):
    lab.bad_wire(host, twice=1.0)


@fault("link-loss", on="last", counts=(3,), also=("link-slow",))
def wire_swaps_a_third_of_the_packets(lab, host):
    lab.bad_wire(host, swapped=0.3)


@fault("link-loss", on="any", counts=(4,), also=("link-slow",))
def wire_damages_a_tenth_of_the_packets(lab, host):
    lab.bad_wire(host, damaged=0.1)


@fault("link-loss", on="last", counts=(3,), also=("host-unreachable", "all-ports-dropped"))
def cable_flaps(lab, host):
    port = f"eth0-{lab.hosts.index(host)}"
    flap = f"while :; do ip link set {port} down; sleep 1.5; ip link set {port} up; sleep 1; done"
    host.start("nsenter", f"--net=/run/netns/{lab.switch}", "sh", "-c", flap)


@fault("link-slow", on="last", counts=(3,), also=("link-loss",))
def receive_buffers_are_tiny(lab, host):
    host.sysctl("net.ipv4.tcp_rmem", "2304 2304 2304")


@fault("mtu-blackhole", on="all")
def jumbo_frames_the_switch_swallows(lab, host):
    for place, each in enumerate(lab.hosts):
        # Bundled segments would pass through the virtual cable whatever their size.
        each.ip("link set eth0 mtu 9000 gso_max_segs 1")
        lab.port(place, "mtu 1500")


@fault("mtu-blackhole", on="last")
def tunnel_swallows_large_packets(lab, host):
    host.firewall("OUTPUT -o eth0 -m length --length 1401:65535 -j DROP", families="4")


@fault("mtu-blackhole", on="first")
def large_packets_lost_on_the_way_in(lab, host):
    host.firewall("INPUT -i eth0 -m length --length 1401:65535 -j DROP", families="4")


@fault("link-loss", on="last")
def a_third_of_the_packets_is_lost(lab, host):
    host.firewall("INPUT -i eth0 -m statistic --mode random --probability 0.3 -j DROP")


@fault("link-slow", on="last", also=("link-loss",))
def ten_megabit_link(lab, host):
    lab.rate(host, "10mbit")


@fault("one-way", on="last", also=("data-ports-dropped",))
def firewall_allows_few_connections(lab, host):
    host.firewall("INPUT -i eth0 -p tcp --syn -m connlimit --connlimit-above 1 --connlimit-mask 0 -j DROP",
                  families="4")  # fmt: skip
