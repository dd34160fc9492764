"""Hosts without machines: network namespaces on a switch, each with its own addresses, firewall, names and limits.

    with Lab(hosts=3, families="46") as lab:
        lab.hosts[1].firewall("INPUT -p tcp --dport 29500 -j DROP")
        lab.hosts[0].run("python3", "-c", "...")

The switch is a namespace with a bridge for each network. In the machine's own namespace no interface and no rule is
made. All names have the prefix `mlab<process id>-`; the next Lab removes what a killed process left.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "mlab"
HOSTS_FILES = Path("/etc/netns")
_number = itertools.count()
WIRE = Path(__file__).resolve().parent / "wire.py"
LETTERS = "abcdefghijklmnopqrstuvwxyz"
PORT, FEW = 29500, 3
# A bucket must hold what is sent between two looks of the kernel.
BURST = {"1gbit": "256kb", "100mbit": "64kb"}


def missing():
    """Why there can be no laboratory on this machine, or an empty text."""
    if os.geteuid() != 0:
        return "the fault laboratory needs root (network namespaces)"
    lacking = [tool for tool in ("ip", "iptables", "ip6tables", "ebtables", "tc", "unshare") if not shutil.which(tool)]
    if lacking:
        return f"the fault laboratory needs {', '.join(lacking)}"
    made = subprocess.run(["ip", "netns", "add", f"{PREFIX}{os.getpid()}-try"], capture_output=True, text=True)
    if made.returncode:
        return f"no network namespaces here: {made.stderr.strip()}"
    subprocess.run(["ip", "netns", "del", f"{PREFIX}{os.getpid()}-try"], check=True)
    return ""


def must(*argv, stdin=None):
    """Run a command for the laboratory itself; if it fails, raises RuntimeError with its message."""
    done = subprocess.run(argv, input=stdin, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError(f"{' '.join(argv)}: {done.stderr.strip()}\n{stdin or ''}")
    return done.stdout


@dataclass
class Host:
    """One host. `setup` are shell lines that run before each command: `ulimit -n 64`, a small /dev/shm, ..."""

    name: str
    space: str
    addresses: dict[str, str]
    environment: dict[str, str] = field(default_factory=dict)
    setup: list[str] = field(default_factory=list)
    busy: list[subprocess.Popen] = field(default_factory=list)

    def variables(self, inside=True):
        """The environment of a command on this host.

        Not `inside`: the machine's, with the host's clock, without the run's.
        """
        own = {
            name: value for name, value in self.environment.items() if inside or name in ("PYTHONPATH", "LAB_CLOCK_S")
        }
        return {**os.environ, **own}

    @property
    def address(self):
        """Its address in the cluster's network, IPv4 if it has one."""
        return self.addresses.get("4") or self.addresses["6"]

    def prefix(self, inside=True):
        """The words to put before a command for this host; not `inside`: without the run's limits and mounts."""
        setup = [line for line in self.setup if inside or line.startswith("hostname")]
        script = "\n".join(["set -e", f"hostname {self.name}", *setup, 'exec "$@"'])
        return ["ip", "netns", "exec", self.space, "unshare", "--uts", "sh", "-c", script, "host"]

    def start(self, *argv, **options):
        """Start a process on this host that ends with the laboratory."""
        options = {"start_new_session": True, **options}
        environment = {**self.variables(), **options.pop("env", {})}
        self.busy.append(subprocess.Popen([*self.prefix(), *argv], env=environment, **options))
        return self.busy[-1]

    def run(self, *argv, seconds=30):
        """Run a command on this host, and return its result, whether it failed or not."""
        line = [*self.prefix(), *argv]
        return subprocess.run(line, env=self.variables(), capture_output=True, text=True, timeout=seconds)

    def ip(self, *lines):
        """Run `ip` commands in this host's network."""
        must("ip", "-netns", self.space, "-batch", "-", stdin="\n".join(lines) + "\n")

    def firewall(self, *rules, families="46"):
        """Append iptables rules (`INPUT -p tcp --dport 29500 -j DROP`), by default for both address families."""
        for family in families:
            for rule in rules:
                table = {"4": "iptables", "6": "ip6tables"}[family]
                must("ip", "netns", "exec", self.space, table, "-w", "-A", *rule.split())

    def sysctl(self, name, value):
        """Change a kernel setting that each network namespace has for itself."""
        must("ip", "netns", "exec", self.space, "sysctl", "-qw", f"{name}={value}")

    def knows(self, *lines):
        """Write this host's whole /etc/hosts."""
        (HOSTS_FILES / self.space / "hosts").write_text(
            "127.0.0.1 localhost\n::1 localhost\n" + "\n".join(lines) + "\n"
        )


class Lab:
    """`hosts` hosts in one network, where all names resolve and nothing is filtered. Most methods break something."""

    def __init__(self, hosts=2, families="4", net4="10.77.0"):
        self.families, self.net4 = families, net4
        self.mark = f"{PREFIX}{os.getpid()}-{next(_number)}-"
        self.switch = f"{self.mark}sw"
        self.count = hosts
        self.hosts: list[Host] = []

    def __enter__(self):
        sweep()
        remove(self.mark)
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        self.stop()
        remove(self.mark)

    def stop(self):
        """End everything that runs on the hosts."""
        for space in spaces():
            if space.startswith(self.mark):
                kill(space)
        for host in self.hosts:
            for process in host.busy:
                process.wait()

    def network(self, name, net4, net6="", mtu=1500):
        """Add a network: a bridge in the switch, an interface `name` on every host. `net4`: such as `192.168.50`."""
        bridge = f"br-{name}"[:15]
        lines = [f"link add {bridge} type bridge", f"link set {bridge} up"]
        # Only the cluster's own network has a gateway; a second network has none.
        lines += [f"address add {net4}.1/24 dev {bridge}"] if net4 and name == "eth0" else []
        lines += [f"address add {net6}::1/64 dev {bridge} nodad"] if net6 and name == "eth0" else []
        must("ip", "-netns", self.switch, "-batch", "-", stdin="\n".join(lines) + "\n")
        for place, host in enumerate(self.hosts):
            port = f"{name}-{place}"[:15]
            own = [f"link add {name} mtu {mtu} type veth peer name {port} netns {self.switch}", f"link set {name} up"]
            own += [f"address add {net4}.{10 + place}/24 dev {name}"] if net4 else []
            own += [f"address add {net6}::{10 + place}/64 dev {name} nodad"] if net6 else []
            host.ip(*own)
            wire = [f"link set {port} master {bridge} mtu {mtu}", f"link set {port} up"]
            must("ip", "-netns", self.switch, "-batch", "-", stdin="\n".join(wire) + "\n")
        if self.count > FEW:
            self._fill_neighbour_tables(name, net4, net6)

    def _fill_neighbour_tables(self, name, net4, net6):
        """Tell all hosts the other hosts' hardware addresses.

        The kernel has one neighbour table for all namespaces, with 1024 entries by default: many hosts overflow it.
        """
        shown = [must("ip", "-netns", host.space, "-j", "link", "show", name) for host in self.hosts]
        cards = [json.loads(text)[0]["address"] for text in shown]
        for place, host in enumerate(self.hosts):
            host.ip(*(
                f"neigh replace {net}{10 + other} lladdr {card} dev {name} nud permanent"
                for other, card in enumerate(cards) if other != place
                for net in ([f"{net4}."] if net4 else []) + ([f"{net6}::"] if net6 else [])
            ))  # fmt: skip

    def wire_drops(self, source, target, *match):
        """Drop packets from one host's port to another's in the switch, like a cloud's security group."""
        ports = (f"eth0-{self.hosts.index(source)}", f"eth0-{self.hosts.index(target)}")
        rule = ["-A", "FORWARD", "-i", ports[0], "-o", ports[1], *match, "-j", "DROP"]
        must("ip", "netns", "exec", self.switch, "ebtables", *rule)

    def on_switch(self, *argv):
        """Run a command in the switch's network."""
        must("ip", "netns", "exec", self.switch, *argv)

    def port(self, place, what):
        """Change the switch's end of a host's cable: `ip link set PORT <what>`."""
        must("ip", "-netns", self.switch, "link", "set", f"eth0-{place}", *what.split())

    def bad_wire(self, host, delay_s=0.0, twice=0.0, swapped=0.0, damaged=0.0):
        """Make the host's cable delay packets both ways, and double, swap or damage these shares of them."""
        what = [f"eth0-{self.hosts.index(host)}", "br-eth0", *map(str, (delay_s, twice, swapped, damaged))]
        inside = ["ip", "netns", "exec", self.switch, sys.executable, str(WIRE)]
        host.busy.append(subprocess.Popen([*inside, *what], stdout=subprocess.PIPE, start_new_session=True))
        if host.busy[-1].stdout.readline() != b"ready\n":
            raise RuntimeError("lab/wire.py did not get ready")

    def rate(self, host, rate, way="both"):
        """Limit the rate at which the host sends (`out`), receives (`in`) or both, to for example `10mbit`."""
        shape = ["root", "tbf", "rate", rate, "burst", BURST.get(rate, "32kbit"), "latency", "50ms"]
        if way != "in":
            must("tc", "-netns", host.space, "qdisc", "replace", "dev", "eth0", *shape)
        if way != "out":
            port = f"eth0-{self.hosts.index(host)}"
            must("tc", "-netns", self.switch, "qdisc", "replace", "dev", port, *shape)

    def rate_between(self, source, target, rate, slow):
        """Limit the rate from `source` to `target` to `slow`; to other hosts, `source` sends with `rate`."""
        tc = ["tc", "-netns", source.space]
        must(*tc, "qdisc", "replace", "dev", "eth0", "root", "handle", "1:", "htb", "default", "1")
        for number, limit in (("1", rate), ("2", slow)):
            must(*tc, "class", "add", "dev", "eth0", "parent", "1:", "classid", f"1:{number}", "htb", "rate", limit,
                 "quantum", "60000")  # fmt: skip
        for address in target.addresses.values():
            protocol, word, bits = ("ipv6", "ip6", 128) if ":" in address else ("ip", "ip", 32)
            must(*tc, "filter", "add", "dev", "eth0", "parent", "1:", "protocol", protocol, "u32", "match", word, "dst",
                 f"{address}/{bits}", "flowid", "1:2")  # fmt: skip

    def everybody_knows(self, lines=None):
        """Write /etc/hosts on all hosts; without `lines`, every host's name at its address."""
        whole = [f"{address} {host.name}" for host in self.hosts for address in host.addresses.values()]
        for host in self.hosts:
            host.knows(*(whole if lines is None else lines))

    def _build(self):
        must("ip", "netns", "add", self.switch)
        for place in range(self.count):
            name = f"gpu-{LETTERS[place]}" if place < len(LETTERS) else f"gpu-{place}"
            addresses = {"4": f"{self.net4}.{10 + place}", "6": f"fd77::{10 + place}"}
            space = f"{self.mark}{place}"
            must("ip", "netns", "add", space)
            folder = HOSTS_FILES / space
            folder.mkdir(parents=True)
            (folder / "resolv.conf").write_text("# no name server: what is not in /etc/hosts is unknown at once\n")
            addresses = {family: addresses[family] for family in self.families}
            self.hosts.append(Host(name, space, addresses))
            self.hosts[-1].ip("link set lo up")
        self.network("eth0", self.net4 if "4" in self.families else "", "fd77" if "6" in self.families else "")
        for host in self.hosts:
            host.ip(*([f"route add default via {self.net4}.1"] if "4" in self.families else []))
            host.ip(*(["route add ::/0 via fd77::1"] if "6" in self.families else []))
        self.everybody_knows()


def sweep():
    """Remove what the laboratories of ended processes have left."""
    marks = {match[0] for line in spaces() if (match := re.match(rf"{PREFIX}(\d+)-", line))}
    for mark in marks:
        if not Path(f"/proc/{mark[len(PREFIX) : -1]}").exists():
            remove(mark)


def spaces():
    """All named network namespaces of this machine."""
    return [line.split()[0] for line in must("ip", "netns", "list").splitlines() if line]


def remove(mark):
    """End all processes in the namespaces with this mark, and remove the namespaces."""
    for space in spaces():
        if space.startswith(mark):
            kill(space)
            # Another laboratory may be removing the same namespace at the same time.
            subprocess.run(["ip", "netns", "del", space], capture_output=True)
    for folder in HOSTS_FILES.glob(f"{mark}*"):
        shutil.rmtree(folder, ignore_errors=True)


def kill(space):
    """End all processes in a namespace; repeated, because a process may start another one meanwhile."""
    while pids := subprocess.run(["ip", "netns", "pids", space], capture_output=True, text=True).stdout.split():
        subprocess.run(["kill", "-9", *pids], capture_output=True)
