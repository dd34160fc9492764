"""Paths that carry something, but not all of it: sizes, losses, rates."""

from lab.fault import fault


@fault("mtu-blackhole", on="all")
def jumbo_frames_the_switch_swallows(lab, host):
    for place, each in enumerate(lab.hosts):
        # Bundled segments would pass the virtual cable whatever their size.
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
