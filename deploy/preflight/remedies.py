"""The texts of preflight's fixes: what to type, and on which host; checks/ choose among them. Pure.

Their form: `on gpu-b: COMMAND; COMMAND   (a remark)`, `on a and b: ...; on c: ...`, `...; or on c: ...`. lab/fixes.py
extracts the commands from these texts, and benchmarks/preflight_fixes.py runs them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from ..causes.finding import Finding
from ..causes.table import ROWS
from ..core.text import listed
from . import prediction
from .answers import Answers
from .request import MUSTER

# A rule as the probe reports it: `filter: -A INPUT -p tcp --dport 29500 -j DROP`, `raw6: -A PREROUTING ...`.
_RULE = re.compile(r"(?P<table>raw|mangle|nat|filter)(?P<six>6?): -A (?P<chain>\S+) ")
_PLAIN = re.compile(r"[\w ./:,=!-]+")
_IN, _OUT = ("INPUT", "PREROUTING"), ("OUTPUT", "POSTROUTING")


def interface_of(answers: Answers, host: str) -> str:
    """Return the interface of a host that the run would use; empty if unknown."""
    if host not in answers.facts:
        return ""
    pick = answers.picks[host]
    return pick.interface if pick.address and not prediction.is_loopback(pick.address) else ""


def on_hosts(hosts: Iterable[str], command: Callable[[str], str]) -> str:
    """Return `on a and b: COMMAND; on c: COMMAND`: hosts with the same command are listed together."""
    by_command: dict[str, list[str]] = {}
    for host in hosts:
        by_command.setdefault(command(host), []).append(host)
    return "; ".join(f"on {listed(names, len(names))}: {words}" for words, names in by_command.items())


def with_interface(answers: Answers, hosts: Sequence[str], command: str) -> str:
    """Return the command for these hosts, with `IF` replaced by each host's own interface."""
    return on_hosts(hosts, lambda host: command.replace("IF", interface_of(answers, host) or "<interface>"))


def network_of(answers: Answers, host: str, like: str = "") -> str:
    """Return the network of the address that a host uses for the run; `like`: an address of the family to prefer."""
    rows = list(prediction.reachable(answers.facts[host]))
    mine = answers.picks[host].address
    same = [row for row in rows if row[1] == mine] if not like or (":" in like) == (":" in mine) else []
    rows = same or [row for row in rows if not like or (":" in row[1]) == (":" in like)] or rows
    return str(prediction.network_of(*rows[0][1:])) if rows else mine or "<its network>"


def let_in(interface: str, network: str, ports: str = "") -> str:
    """Return a command that lets calls from a network in, before any other rule.

    `ports`: `29500`, `32768-60999`; empty: all.
    """
    port = f" -p tcp --dport {ports.replace('-', ':')}" if ports else ""
    return f"{_tables(network)} -I INPUT{f' -i {interface}' if interface else ''} -s {network}{port} -j ACCEPT"


def let_out(interface: str, network: str) -> str:
    """Return a command that lets packets to a network out, before any other rule."""
    return f"{_tables(network)} -I OUTPUT{f' -o {interface}' if interface else ''} -d {network} -j ACCEPT"


def let_itself() -> str:
    """Return a command that lets a host reach itself."""
    return "sudo ip link set lo up; sudo iptables -I INPUT -i lo -j ACCEPT; sudo iptables -I OUTPUT -o lo -j ACCEPT"


def _tables(network: str) -> str:
    return "sudo ip6tables" if ":" in network else "sudo iptables"


def use_interface(answers: Answers, host: str, name: str) -> str:
    """Return how to set a host's interface: `muster deploy` reads cluster.toml, other launchers the environment."""
    if answers.request.style == MUSTER:
        return f'interface = "{name}" for {host} in cluster.toml'
    return f"on {host}: export GLOO_SOCKET_IFNAME={name} NCCL_SOCKET_IFNAME=={name}"


def set_name_command(name: str, address: str) -> str:
    """Return a command that gives a name this address, and no other, in a host's /etc/hosts."""
    word = name.replace(".", r"\.")
    drop = rf"sudo sed -Ei 's/\s{word}(\s|$)/\1/g' /etc/hosts"
    return f"{drop} && echo '{address} {name}' | sudo tee -a /etc/hosts"


def with_path_fix(finding: Finding, answers: Answers) -> Finding:
    """Return the finding; if firewall rules have just dropped packets of its hosts, replace its fix.

    The new fix lets the cluster's network past these rules. If no rule has, the path may be a tunnel that is gone.
    """
    grown = {host: answers.rules_that_dropped(host) for host in finding.hosts if host in answers.facts}
    kind = finding.cause.partition("-")[0]
    port = {"rendezvous": str(answers.request.port), "data": "DATA"}.get(kind, "")
    lines = {host: _past(answers, host, rules, port) for host, rules in grown.items()}
    lines = {host: line for host, line in lines.items() if line}
    if not finding.cells or not lines:
        return _with_tunnel_fix(finding, answers)
    rule = next(rules[0] for rules in grown.values() if rules)
    remark = f"   (it comes before: {rule})" if _PLAIN.fullmatch(rule) else ""
    return replace(finding, fix=f"{on_hosts(lines, lines.__getitem__)}{remark}")


def _with_tunnel_fix(finding: Finding, answers: Answers) -> Finding:
    """Return the finding; if its path is a tunnel that has carried nothing, put the tunnel's repair first in its fix.

    A tunnel whose other end is gone looks the same as a firewall that drops everything.
    """
    pairs = set(finding.cells)
    dead = pairs and not any(link.ok for link in answers.links if link.ends in pairs)
    hosts = [host for host in finding.hosts if host in answers.facts and _tunnel(answers, host)]
    if not ROWS[finding.cause].gets_no_answer or not dead or not hosts:
        return finding
    again = on_hosts(hosts, lambda host: _made_again(interface_of(answers, host)))
    named = listed([f"{interface_of(answers, host)} of {host}" for host in hosts])
    text = f"{finding.text}; the route leads through a tunnel ({named}), and nothing has come through it"
    return replace(finding, text=text, fix=f"{again}; else: {finding.fix}")


def _tunnel(answers: Answers, host: str) -> bool:
    entry = answers.facts[host]["interfaces"].get(interface_of(answers, host), {})
    return bool(entry.get("tunnel") or entry.get("point_to_point")) and not entry.get("loopback")


def _made_again(name: str) -> str:
    """Return commands that show a tunnel's state and restart it, with the program that makes such interfaces."""
    if name.startswith("wg"):
        return f"sudo wg show {name}; sudo wg-quick down {name}; sudo wg-quick up {name}"
    services = {"tailscale": "tailscaled", "zt": "zerotier-one", "nebula": "nebula", "tun": "openvpn"}
    service = next((program for begin, program in services.items() if name.startswith(begin)), "")
    look = f"ip -s -d link show {name}"
    return f"{look}; sudo systemctl restart {service}" if service else f"{look}; then check what makes that tunnel"


def _of_interface(answers: Answers, host: str, name: str, six: bool) -> str:
    rows = [row for row in prediction.reachable(answers.facts[host]) if row[0] == name and (":" in row[1]) == six]
    if rows:
        return str(prediction.network_of(*rows[0][1:]))
    return network_of(answers, host, "::" if six else "0.0.0.0")


def _past(answers: Answers, host: str, rules: Sequence[str], port: str) -> str:
    commands = dict[str, None]()
    for rule in rules:
        known = _RULE.match(rule)
        if not known or known["chain"] not in (*_IN, *_OUT):
            continue
        way, end = ("-i", "-s") if known["chain"] in _IN else ("-o", "-d")
        named = re.search(rf" {way} (\S+)", rule)
        # A rule is text from the host: a name in it goes into a command only if it is one of that host's interfaces.
        own = named[1] if named and named[1] in answers.facts[host]["interfaces"] else ""
        name = own or interface_of(answers, host)
        network = _of_interface(answers, host, name, bool(known["six"]))
        at = f" {way} {name}" if name else ""
        table = "" if known["table"] == "filter" else f" -t {known['table']}"
        low, high = answers.facts[host]["port_range"]
        only = f" -p tcp --dport {port}".replace("DATA", f"{low}:{high}") if port else ""
        commands[f"sudo ip{known['six']}tables{table} -I {known['chain']}{at} {end} {network}{only} -j ACCEPT"] = None
    return "; ".join(commands)
