"""A finding's last words: its verb agrees with its hosts, its fix names their interfaces and suits the launcher. Pure.

The checks write of one host, and of a run that the user's own shell starts.
"""

from __future__ import annotations

import re
from dataclasses import replace

from . import prediction
from .answers import Answers
from .findings import Finding, listed
from .request import MUSTER

_MANY = {
    "has": "have",
    "is": "are",
    "does": "do",
    "drops": "drop",
    "rejects": "reject",
    "shows": "show",
    "reaches": "reach",
}
_UFW = re.compile(r"sudo ufw allow (out )?proto tcp (from|to) (\S+)")
_EXPORT = re.compile(r"export (?:(?:GLOO|NCCL)_SOCKET_IFNAME==?([\w.-]+) ?)+")


def worded(finding: Finding, answers: Answers) -> Finding:
    """The finding in its last words."""
    return replace(finding, text=_agreeing(finding), fix=_fix(finding, answers))


def _agreeing(finding: Finding) -> str:
    """The text; if it begins with several hosts, its first verb is of many."""
    subject = f"{listed(finding.hosts)} "
    if len(finding.hosts) < 2 or not finding.text.startswith(subject):
        return finding.text
    verb, blank, rest = finding.text.removeprefix(subject).partition(" ")
    if verb == "reaches":
        rest = rest.replace("no host reaches it", "no host reaches them")
    return f"{subject}{_MANY.get(verb, verb)}{blank}{rest}"


def _fix(finding: Finding, answers: Answers) -> str:
    interfaces = {host: interface for host in finding.hosts if (interface := interface_of(answers, host))}
    names = sorted(set(interfaces.values()))
    fix = finding.fix
    if names:
        fix = fix.replace("<interface>", names[0] if len(names) == 1 else f"<{' or '.join(names)}>")
    if len(names) == 1 and len(interfaces) == len(finding.hosts):
        fix = _UFW.sub(lambda rule: _rule(rule, names[0]), fix)
    if answers.request.style == MUSTER:
        # What a shell of the host exports is not in the run's container.
        fix = _EXPORT.sub(lambda export: f'interface = "{export[1]}" for it in cluster.toml', fix)
        fix = re.sub(r"on (\S+): (interface = \S+) for it in cluster\.toml", r"\2 for \1 in cluster.toml", fix)
    return fix


def _rule(rule: re.Match[str], interface: str) -> str:
    way = "out on" if rule[1] else "in on"
    return f"sudo ufw allow {way} {interface} proto tcp {rule[2]} {rule[3]}"


def interface_of(answers: Answers, host: str) -> str:
    """The interface of a host that the run would use, as far as it is known."""
    if host not in answers.hosts_with_facts:
        return ""
    pick = answers.plan.data[host]
    return pick.interface if pick.address and not prediction.is_loopback(pick.address) else ""
