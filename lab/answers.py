"""Answers of three healthy hosts, as probes would give them; a test changes what it needs."""

import dataclasses

from deploy.preflight import Answers, PreflightRequest
from deploy.preflight.answers import Link, pairs

HOSTS = ("a", "b", "c")
PORT, DATA = 29500, 40000


def facts(place, **more):
    """The facts of a healthy host: one interface, and names that resolve to it."""
    names = {host: [[f"10.0.0.{number + 1}", number == place, host]] for number, host in enumerate(HOSTS)}
    link = {"mtu": 1500, "speed": 0, "mac": "", "bridge": False, "tunnel": False, "errors": 0, "up": True}
    link |= {"running": True, "point_to_point": False}
    room = {"total": 1 << 40, "free": 1 << 39, "inodes": 10, "inodes_free": 9}
    return {
        "hostname": HOSTS[place],
        "fqdn": HOSTS[place],
        "names": names,
        "interfaces": {
            "lo": {**link, "mtu": 65536, "loopback": True, "addresses": [["127.0.0.1", 8]]},
            "eth0": {**link, "loopback": False, "addresses": [[f"10.0.0.{place + 1}", 24]]},
        },
        "port_range": [32768, 60999],
        "environment": {},
        "software": {"python": "3.11.7", "torch": "2.13.0"},
        "gpus": {"absent": True, "devices": False},
        "leftovers": [],
        "rdma": [],
        "resources": {
            "disk": {"/": room, "/dev/shm": room},
            "nofile": [1 << 20, 1 << 20],
            "memlock": [-1, -1],
            "memory": {"MemTotal": 1 << 36, "MemAvailable": 1 << 35, "limit": 0},
            "conntrack": [],
        },
        **more,
    }


def answers(request=None, change=None, outcome=lambda source, target, kind: "ok", **more):
    """The answers of three hosts; `change`: facts by host, `outcome`: the result of a link for each kind."""
    links = []
    for source, target in pairs(HOSTS):
        address = f"10.0.0.{HOSTS.index(target) + 1}"
        meet = "rendezvous" if target == "a" else "hint"
        outcomes = {kind: outcome(source, target, kind) for kind in ("meet", "data")}
        links.append(Link(source, target, address, PORT, (meet,), outcomes["meet"], host=target))
        links.append(Link(source, target, address, DATA, ("data",), outcomes["data"], host=target, sent=50))
    links = [link if link.outcome == "ok" else dataclasses.replace(link, host="") for link in links]
    known = {host: facts(place, **(change or {}).get(host, {})) for place, host in enumerate(HOSTS)}
    listens = {host: {"ports": [PORT], "sampled": [DATA], "failed": {}, "routes": {}, "names": {}} for host in HOSTS}
    clocks = dict.fromkeys(HOSTS, (0.0, 0.001))
    values = {"listens": listens, "clocks": clocks, "links": tuple(links), **more}
    return Answers(request or PreflightRequest(style="torchrun", endpoint="10.0.0.1"), HOSTS, facts=known, **values)
