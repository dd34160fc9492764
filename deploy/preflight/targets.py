"""Which host calls which, and where: each connection that torch will make, and more to tell causes apart. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from . import prediction
from .answers import Answers, Link

# How many ports of the system's range to try: torch's second store, gloo and NCCL listen on ports of that range.
SAMPLES = 4
# Above this number of hosts, each calls each other only once at first: pairs grow with the square of the hosts.
MANY = 16
PAYLOAD, MOST_OTHERS = 64 * 1024, 4
# Still larger than a packet of any network. For 64 hosts, all pairs together carry half a gigabyte less.
SMALL_PAYLOAD = 16 * 1024
FEW, LONG_SIZE, LONG_WAIT_S = 8, 2 << 20, 6.0
SLOW_S, MOST_SUSPECTS, RATE_SIZE, RATE_WAIT_S = 0.04, 3, 1 << 20, 2.5


def targets(answers: Answers, source: str) -> list[dict[str, Any]]:
    """The calls of one host: one target for each address and port, with all kinds that need it."""
    by_host: dict[tuple[str, str, int], dict[str, Any]] = {}
    for kind, host, address, port, size in _wanted(answers, source):
        key = (host, address, port)
        entry = by_host.setdefault(key, {"host": host, "address": address, "port": port, "kinds": [], "size": 0})
        entry["kinds"] = list(dict.fromkeys([*entry["kinds"], kind]))
        entry["size"] = max(entry["size"], size)
    return [{**entry, "id": number} for number, entry in enumerate(by_host.values())]


def few_targets(answers: Answers, source: str) -> list[dict[str, Any]]:
    """The targets that must work, and one data port of each host, which differs from caller to caller."""
    place, few = answers.hosts_with_facts.index(source), []
    every = targets(answers, source)
    opened = {host: answers.listens.get(host, {}).get("sampled", []) for host in answers.hosts_with_facts}
    for target in every:
        ports = opened.get(target["host"], [])
        chosen = "data" in target["kinds"] and ports and target["port"] == ports[place % len(ports)]
        if chosen or {"rendezvous", "store"} & set(target["kinds"]):
            few.append({**target, "size": SMALL_PAYLOAD if chosen else min(target["size"], SMALL_PAYLOAD)})
    return few


def doubtful(answers: Answers, links: Iterable[Link]) -> dict[str, list[dict[str, Any]]]:
    """All targets, by caller, of the pairs that share the caller or the called host with a failed call of `links`."""
    failed = [link for link in links if not link.ok]
    callers, called = {link.source for link in failed}, {link.target for link in failed}
    pairs = {}
    for source in answers.hosts_with_facts if failed else ():
        wanted = targets(answers, source)
        pairs[source] = [call for call in wanted if source in callers or call["host"] in called]
    return pairs


def suspects(answers: Answers) -> dict[str, list[dict[str, Any]]]:
    """Calls, one at a time, by caller: to pairs whose payload took long, because the host may only have been busy.

    If all went well among few hosts, each calls the next one with a large payload.
    """
    sent = [link for link in answers.links if link.ok and link.size and "data" in link.kinds]
    slow = sorted((link for link in sent if link.both_s > SLOW_S * link.size / PAYLOAD), key=lambda link: -link.both_s)
    rounds: dict[str, list[dict[str, Any]]] = {}
    for link in slow[:MOST_SUSPECTS]:
        target = {"id": 0, "host": link.target, "address": link.address, "port": link.port, "kinds": ["rate"]}
        rounds.setdefault(link.source, []).append({**target, "size": RATE_SIZE, "wait": RATE_WAIT_S})
    if len(answers.hosts_with_facts) <= FEW and not slow:
        for pair in zip(answers.hosts_with_facts, answers.hosts_with_facts[1:], strict=False):
            rounds.setdefault(pair[0], []).extend(_long(answers, pair))
    return rounds


def _long(answers: Answers, pair: tuple[str, str]) -> list[dict[str, Any]]:
    tried = answers.between(*pair) + answers.between(*pair[::-1])
    if all(link.ok and not link.again for link in tried):
        for link in answers.between(*pair, "data")[:1]:
            target = {"id": 0, "host": link.target, "address": link.address, "port": link.port, "kinds": ["long"]}
            return [{**target, "size": LONG_SIZE, "wait": LONG_WAIT_S}]
    return []


def link_of(source: str, target: dict[str, Any], result: dict[str, Any]) -> Link:
    """The link that a target and its result make."""
    return Link(
        source=source,
        target=target["host"],
        address=target["address"],
        port=target["port"],
        kinds=tuple(target["kinds"]),
        outcome=result["outcome"],
        ms=result.get("ms", 0.0),
        host=result.get("host", ""),
        seen=result.get("seen", ""),
        out_address=result.get("source", ""),
        tries=result.get("tries", 1),
        sent=result.get("sent", 0),
        again=result.get("again", 0),
        twice=result.get("twice", 0),
        send_s=result.get("send_s", 0.0),
        both_s=result.get("both_s", 0.0),
        size=target["size"],
        rate=result.get("rate", 0),
        trip_ms=result.get("trip_ms", 0.0),
    )


def _wanted(answers: Answers, source: str) -> Iterator[tuple[str, str, str, int, int]]:
    """(kind, host, address, port, payload bytes)."""
    plan, port = answers.plan, answers.request.port
    for address in answers.resolved(source, plan.endpoint) or ():
        if not prediction.is_loopback(address):
            yield "rendezvous", answers.meeting, address, port, 0
    for target in answers.hosts_with_facts:
        opened = answers.listens.get(target, {}).get("sampled", [])
        if target == source or not opened:
            continue
        if target == plan.first:
            for address in answers.resolved(source, plan.store_name) or ():
                if not prediction.is_loopback(address):
                    yield "store", target, address, opened[0], 0
        pick = plan.data[target]
        if pick.address and not prediction.is_loopback(pick.address) and pick.problem != "link-local":
            for number, sample in enumerate(opened):
                yield "data", target, pick.address, sample, 0 if number else PAYLOAD
        others = [address for _, address, _ in prediction.reachable(answers.facts[target]) if address != pick.address]
        for address in others[:MOST_OTHERS]:
            yield "other", target, address, opened[0], PAYLOAD
        for address in {pick.address, *others[:1]} - {""}:
            if target != answers.master and not prediction.is_loopback(address) and pick.problem != "link-local":
                yield "hint", target, address, port, 0
