"""Ports that another program uses, and too few ports."""

import sys

from lab.fault import TORCHRUN, fault
from lab.network import PORT


@fault("few-ports", on="all")
def few_local_ports(lab, host):
    for each in lab.hosts:
        each.sysctl("net.ipv4.ip_local_port_range", "50000 50002")


LISTENER = """
import socket, time
server = socket.create_server(("", {port}), backlog=64)
kept = []
while True:
    kept.append(server.accept())
"""


def listens(host, port):
    """Start a server of somebody else that accepts connections and sends nothing."""
    host.start(sys.executable, "-c", LISTENER.format(port=port))
    host.run("sh", "-c", f"for _ in 1 2 3 4 5 6 7 8 9; do ss -ltn | grep -q :{port} && break; sleep 0.2; done")


@fault("port-busy", on="first")
def rendezvous_port_taken(lab, host):
    listens(host, PORT)


@fault("port-busy", on="first", style=TORCHRUN)
def rendezvous_port_taken_plain(lab, host):
    listens(host, PORT)


@fault("port-busy", on="first", style=TORCHRUN, rendezvous="static")
def rendezvous_port_taken_static(lab, host):
    listens(host, PORT)


@fault("port-busy", on="other")
def rendezvous_port_taken_where_nobody_needs_it(lab, host):
    listens(host, PORT)


@fault("wrong-machine", on="first", also=("rendezvous-dropped", "port-busy"))
def rendezvous_port_redirected(lab, host):
    listens(host, 8080)
    host.firewall(f"PREROUTING -t nat -p tcp --dport {PORT} -j REDIRECT --to-port 8080", families="4")
    return [host.name]


CALLS_FROM_THE_PORT = """
import socket, time
there, here = socket.create_server(("127.0.0.1", 0)), socket.socket()
here.bind(("127.0.0.1", {port}))
here.connect(there.getsockname())
time.sleep(999)
"""


@fault("port-busy", on="first", counts=(2,))
def own_call_sits_on_the_rendezvous_port(lab, host):
    host.start("python3", "-c", CALLS_FROM_THE_PORT.format(port=PORT))
    host.run("sh", "-c", f"for _ in 1 2 3 4 5 6 7 8 9; do ss -tn | grep -q :{PORT} && break; sleep 0.2; done")


@fault("few-ports", on="all", counts=(3,))
def port_range_holds_the_rendezvous_port(lab, host):
    for each in lab.hosts:
        each.sysctl("net.ipv4.ip_local_port_range", "29400 29700")
