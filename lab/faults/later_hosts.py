"""Addresses, names and limits of a host, written when the rules of preflight stood."""

from lab.fault import TORCHRUN, later
from lab.faults.names import NAMED, book
from lab.network import HOSTS_FILES, PORT

CALLS_FROM_THE_PORT = """
import socket, time
there, here = socket.create_server(("127.0.0.1", 0)), socket.socket()
here.bind(("127.0.0.1", {port}))
here.connect(there.getsockname())
time.sleep(999)
"""


@later("other-network", on="first", counts=(2, 4))
def another_address_comes_first_on_the_interface(lab, host):
    host.ip(f"address del {host.address}/24 dev eth0", "address add 10.200.0.5/24 dev eth0",
            f"address add {host.address}/24 dev eth0", "route replace default via 10.77.0.1")  # fmt: skip


@later("no-route", on="last", counts=(3,), also=("other-network", "host-unreachable"))
def bridge_took_the_interface_and_has_a_wrong_address(lab, host):
    host.ip("link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0",
            "address add 10.77.9.9/24 dev br0")  # fmt: skip


@later("no-route", on="any", counts=(2, 3))
def address_is_on_a_bridge(lab, host):
    host.ip("link add br0 type bridge", "link set br0 up", "address flush dev eth0", "link set eth0 master br0",
            f"address add {host.address}/24 dev br0", "route add default via 10.77.0.1")  # fmt: skip


@later("duplicate-address", on="other", counts=(2, 4), also=("wrong-machine", "endpoint-twice"))
def address_of_the_first_is_on_a_peers_loopback_too(lab, host):
    host.ip(f"address add {lab.hosts[0].address}/32 dev lo")
    return [lab.hosts[0].name, host.name]


@later("interface-down", on="first", counts=(3,), also=("loopback-down", "host-unreachable"))
def loopback_is_down(lab, host):
    host.ip("link set lo down")


@later("no-route", on="any", families="6", counts=(3,))
def ipv6_address_is_deprecated(lab, host):
    host.ip(f"address change {host.addresses['6']}/64 dev eth0 preferred_lft 0")


@later("no-route", on="any", families="6", counts=(3,))
def ipv6_has_a_temporary_address_too(lab, host):
    host.ip("address add fd77::dead:beef/64 dev eth0 nodad")


@later("no-route", on="any", counts=(3,))
def two_ways_out(lab, host):
    lab.network("eth1", "192.168.60")
    host.ip("route replace default via 10.77.0.1 metric 200", "route add default via 192.168.60.1 dev eth1 metric 50")


@later("peer-name-wrong", on="other", counts=(4,), also=("endpoint-foreign", "wrong-machine"), **NAMED)
def old_entry_leads_to_another_of_the_hosts(lab, host):
    first, wrong = lab.hosts[0], next(each for each in lab.hosts[1:] if each is not host)
    host.knows(*book(lab, without=(first,), instead=(f"{wrong.address} {first.name}",)))


@later("peer-name-unresolvable", on="all", style=TORCHRUN, counts=(3,))
def full_names_that_only_their_owners_know(lab, host):
    for each in lab.hosts:
        own = f"{each.address} {each.name}.old.lan {each.name}"
        each.knows(*book(lab, without=(each,), instead=(own,)))
    return [each.name for each in lab.hosts[1:]]


@later("name-loopback", on="other", style=TORCHRUN, counts=(3,), also=("same-hostname", "endpoint-twice"))
def hostname_is_localhost(lab, host):
    host.setup.append("hostname localhost")


@later("name-unresolvable", on="first", style=TORCHRUN, counts=(2,))
def localhost_is_unknown(lab, host):
    (HOSTS_FILES / host.space / "hosts").write_text("\n".join(book(lab)) + "\n")


@later("port-busy", on="first", counts=(2,))
def own_call_sits_on_the_rendezvous_port(lab, host):
    host.start("python3", "-c", CALLS_FROM_THE_PORT.format(port=PORT))
    host.run("sh", "-c", f"for _ in 1 2 3 4 5 6 7 8 9; do ss -tn | grep -q :{PORT} && break; sleep 0.2; done")


@later("few-ports", on="all", counts=(3,))
def port_range_holds_the_rendezvous_port(lab, host):
    for each in lab.hosts:
        each.sysctl("net.ipv4.ip_local_port_range", "29400 29700")


@later("process-limits", on="any", counts=(2,))
def seconds_of_cpu_are_limited(lab, host):
    host.setup.append("ulimit -t 3")


@later("process-limits", on="any", counts=(3,), also=("memory-low",))
def address_space_is_limited(lab, host):
    host.setup.append("ulimit -v 1500000")


@later("process-limits", on="any", counts=(2,))
def file_size_is_limited(lab, host):
    host.setup.append("ulimit -f 0")


@later("link-slow", on="last", counts=(3,), also=("link-loss",))
def receive_buffers_are_tiny(lab, host):
    host.sysctl("net.ipv4.tcp_rmem", "2304 2304 2304")


@later("settings-differ", on="all", style=TORCHRUN, counts=(3,))
def proxy_for_everything(lab, host):
    for each in lab.hosts:
        each.environment |= {"http_proxy": "http://10.77.0.99:3128", "all_proxy": "socks5://10.77.0.99:1080"}


@later("settings-differ", on="any", counts=(2,))
def gloo_wants_encryption_on_one(lab, host):
    host.environment["GLOO_DEVICE_TRANSPORT"] = "TCP_TLS"


@later("other-network", on="any", style=TORCHRUN, counts=(3,))
def interfaces_differ_and_both_networks_are_shared(lab, host):
    lab.network("eth1", "192.168.60")
    for each in lab.hosts:
        each.environment["GLOO_SOCKET_IFNAME"] = "eth1" if each is host else "eth0"
