"""Invented answers of three hosts: healthy ones with a single change, each for one cause of preflight."""

from __future__ import annotations

import dataclasses

from deploy.host.reached import NoAnswer
from deploy.preflight import Answers, PreflightRequest
from lab.answers import HOSTS, answers, facts

_HEAD = PreflightRequest(style="torchrun", endpoint="head")


def _software(**more):
    return {"software": {**facts(1)["software"], **more}}


def _resources(**more):
    return {"resources": {**facts(1)["resources"], **more}}


def _card(place=1, **more):
    """The host's card with these changes, and a second card in a network that all hosts share."""
    cards = facts(place)["interfaces"]
    second = {**cards["eth0"], "speed": 100_000, "addresses": [[f"10.1.0.{place + 1}", 24]]}
    return {"interfaces": {**cards, "eth0": {**cards["eth0"], **more}, "ib0": second}}


# The change on host b, by a few words.
_CHANGES = {
    "another Python": _software(python="3.12.1"),
    "another torch": _software(torch="2.12.0"),
    "another CUDA": _software(cuda="12.4"),
    "a full table of connections": _resources(conntrack=[100, 100]),
    "hardly any CPU": _resources(pace=(2.1, 0.05, 0.5)),
    "little memory": _resources(memory={"MemTotal": 1 << 36, "MemAvailable": 1 << 25, "limit": 0}),
    "the name of another host": {"hostname": "a"},
    "processes of an old run": {"leftovers": [[4711, 7200.0, "python -m torch.distributed.run train.py"]]},
    "another packet size": _card(mtu=9000),
    "gloo sent to loopback": {"environment": {"GLOO_SOCKET_IFNAME": "lo"}},
    "its name leads to nobody": {"names": {**facts(1)["names"], "b": [["10.9.9.9", False, "b"]]}},
}
# The calls that fail, by a few words: from which host, to which host, and how.
_CALLS = {
    "silence in one direction": ("b", "c", "dropped"),
    "the card of another host": ("c", "b", "wrong-card"),
}
# The address of the endpoint's name `head` on each host; the second value: whether the address is the host's own.
_NAMES = {
    "nobody knows the endpoint": {},
    "the endpoint is loopback elsewhere": {
        "a": [["10.0.0.1", True, "head"]],
        **{host: [["127.0.1.1", True, "head"]] for host in "bc"},
    },
    "nobody has the endpoint's address": {host: [["10.0.0.9", False, "head"]] for host in HOSTS},
}
# Why host b gave no answers: the cause, as the commands on hosts report it, and their message.
_SILENT = {
    "ssh-lost": "the connection ended while the host was looked at",
    "ssh-sessions": "the server opens no session",
    "ssh-slow": "sent nothing for 30 s",
    "ssh-shell": "the login shell printed 1 MB before the command",
    "home-readonly": "its home is on a read-only file system",
    "image-without-python": 'exec: "python3": executable file not found in $PATH',
    "docker-missing": "docker: not found",
    "image-missing": "docker: Error response from daemon: No such image: mine:1",
    "engine-rootless": "this engine is rootless",
    "docker-down": "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?",
    "docker-silent": "no answer within 20 s",
    "docker-refused": "docker: Error response from daemon: unknown or invalid runtime name: kata",
    "docker-wrapped": "this docker is a script that prints more than its answer",
    "podman-command": "this docker is podman",
    "no-iproute2": "ip: not found",
    "no-python": "sh: 1: python3: not found",
    "folder-silent": "/home does not answer",
    "probe-died": "Killed",
}


def made_up() -> dict[str, Answers]:
    """All the invented answers, each by the few words that describe it."""
    made = {words: answers(change={"b": change}) for words, change in _CHANGES.items()}
    slow = {host: _card(place, speed=1_000) for place, host in enumerate(HOSTS)}
    made["a faster card that is not used"] = answers(change=slow)
    for words, (*way, how) in _CALLS.items():
        made[words] = answers(outcome=lambda s, t, k, way=way, how=how: how if [s, t] == way else "ok")
    for words, heads in _NAMES.items():
        names = {host: {"names": {**facts(n)["names"], "head": heads.get(host, {"error": "not known"})}}
                 for n, host in enumerate(HOSTS)}  # fmt: skip
        made[words] = answers(_HEAD, change=names)
    same = {"interfaces": facts(0)["interfaces"], "boot": "x", "namespace": "net:[1]"}
    made["one machine under two names"] = answers(change=dict.fromkeys("ab", same))
    made["an endpoint of no host"] = answers(PreflightRequest(style="torchrun", endpoint="10.0.0.99"))
    well = answers()
    shut = {"a": {**well.listens["a"], "failed": {"29500": {"error": "forbidden", "holder": ""}}}}
    made["a port for root alone"] = dataclasses.replace(well, listens={**well.listens, **shut})
    late = (dataclasses.replace(link, ms=2900.0) if "c" in (link.source, link.target) else link for link in well.links)
    made["no local port is left"] = answers(outcome=lambda s, t, k: "no-address" if s == "b" else "ok")
    made["a long way"] = dataclasses.replace(well, links=tuple(late))
    some = {host: well.facts[host] for host in "ac"}
    for cause, words in _SILENT.items():
        made[cause] = dataclasses.replace(well, facts=some, faults={"b": NoAnswer(cause, f"b: {words}")})
    return made
