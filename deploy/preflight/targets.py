"""Which host calls which, and each call's outcome: refused, stalled, cut or slow, by the bytes that passed. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from . import prediction
from .answers import Answers, Link, Pair, pairs
from .probe.probe import WAIT_S

# One call that a probe is asked to make; and for each caller, its calls.
Call = dict[str, Any]
Calls = dict[str, list[Call]]
# Fields that a link copies unchanged from the result of its call.
_COPIED_FIELDS = (
    *("ms", "host", "seen", "tries", "sent", "again", "twice"),
    *("send_s", "both_s", "rate", "trip_ms", "card", "by"),
)

# How many ports of the system's range to try: torch's second store, gloo and NCCL listen on ports of that range.
SAMPLES = 4
# With more hosts than this, each calls every other one only once at first: pairs grow with the square of the hosts.
MANY = 16
PAYLOAD, MOST_OTHERS = 64 * 1024, 4
# Still larger than a packet of any network. With 64 hosts, all pairs together send half a gigabyte less than with
# PAYLOAD.
SMALL_PAYLOAD = 16 * 1024
FEW, LONG_SIZE, LONG_WAIT_S = 8, 2 << 20, 6.0
# LITTLE: a call that has sent more packets than this has begun its payload. SOME: more bytes than a call can carry
# before its first large packet. STILL_MS: a call that paused for this long no longer carries anything.
LITTLE, SOME, STILL_MS = 8, 16 << 10, 700
# One call of each pair waits longer than the others (PATIENT_S), to tell a late answer from a dropped one.
PATIENT_S, OTHER_S, AGAIN_S, MOST_AGAIN = 3.4, 1.3, 0.5, 2
OFTEN, MOST_OFTEN, MOST_ANSWERED = 16, 16, 0.8
# The outcome if the caller's kernel finds no local port or no local address for a call.
NO_PORT, MOST_ALONE = "no-address", 6
SLOW_S, MOST_SUSPECTS, RATE_SIZE, RATE_WAIT_S = 0.04, 3, 1 << 20, 2.5


def all_calls(answers: Answers, source: str) -> list[Call]:
    """Return the calls of one host: one for each address and port, with all the kinds that need it."""
    by_host: dict[tuple[str, str, int], Call] = {}
    for kind, host, address, port, size in _wanted(answers, source):
        key = (host, address, port)
        entry = by_host.setdefault(key, {"host": host, "address": address, "port": port, "kinds": [], "size": 0})
        entry["kinds"] = list(dict.fromkeys([*entry["kinds"], kind]))
        entry["size"] = max(entry["size"], size)
        waits = PATIENT_S if kind == "rendezvous" or (size and kind == "data") else OTHER_S if kind == "other" else 0.0
        if waits:
            entry["wait"] = max(waits, entry.get("wait", 0.0))
    return [{**entry, "id": number} for number, entry in enumerate(by_host.values())]


def essential_calls(answers: Answers, source: str) -> list[Call]:
    """Return only the calls that must work, and one to a data port of each host, which differs for each caller."""
    place, few = answers.hosts_with_facts.index(source), []
    every = all_calls(answers, source)
    for target in every:
        ports = answers.listened(target["host"], "sampled")
        chosen = "data" in target["kinds"] and ports and target["port"] == ports[place % len(ports)]
        if chosen or {"rendezvous", "store", "between"} & set(target["kinds"]):
            brief = {name: value for name, value in target.items() if name != "wait"}
            few.append({**brief, "size": SMALL_PAYLOAD if chosen else min(target["size"], SMALL_PAYLOAD)})
    return few


def calls_to_repeat(answers: Answers) -> Calls:
    """Return, by caller, failed or lossy calls to repeat: at most two of each pair, with a shorter wait."""
    chosen = []
    for ends in pairs(answers.hosts_with_facts):
        bad = [link for link in answers.between(*ends) if not link.ok or link.again]
        chosen += sorted(bad, key=lambda link: (link.ok, -link.size))[:MOST_AGAIN]
    return _calls_like(chosen, "again", None, AGAIN_S)


def repeated_calls(answers: Answers) -> Calls:
    """Return, by caller, many short calls to make together, for pairs where only some calls were answered."""
    mixed = [links for ends in pairs(answers.hosts_with_facts) if _is_mixed(links := answers.between(*ends))]
    answered = (next(link for link in links if link.ok) for links in mixed[:MOST_OFTEN])
    return _calls_like((link for link in answered for _ in range(OFTEN)), "often", 0, AGAIN_S)


def _is_mixed(links: Sequence[Link]) -> bool:
    """Whether one of these calls was answered, and another was not, or not at the first try."""
    missed = any(link.outcome in ("dropped", "refused") or (link.ok and link.tries > 1) for link in links)
    return missed and any(link.ok for link in links)


def with_final_outcomes(answers: Answers) -> tuple[Link, ...]:
    """Return the links with those outcomes corrected that only all links together can show.

    These are: a call that only sometimes gets an answer, or a late one; a pair where every connection stays silent; and
    a wrong card in the neighbour table. If the network itself answers ARP for its hosts, as some clouds do, no card is
    wrong. The links of repeated calls (`again`) are left out of the result.
    """
    again = {link.call for link in answers.links if "again" in link.kinds and link.ok}
    cards = {
        host: {entry["mac"] for entry in facts["interfaces"].values() if entry.get("mac")}
        for host, facts in answers.facts.items()
    }

    def strange(link: Link) -> bool:
        return bool(link.card and not link.by and cards.get(link.target)) and link.card not in cards[link.target]

    def six(host: str) -> bool:
        return any(":" in address for _, address, _ in prediction.reachable(answers.facts[host]))

    proxied = any(link.ok and strange(link) for link in answers.links)
    late = {link.ends for link in answers.links if link.ms > 1000 * WAIT_S}
    lossy = {link.pair for link in answers.links if link.again or link.tries > 1}
    flaky = {frozenset((row[0], row[1])) for row in answers.often if row[2] <= MOST_ANSWERED * row[3]}
    mute = _mute(answers)
    settled = []
    for link in answers.links:
        outcome = link.outcome
        at_times = link.call in again or link.pair in flaky
        if outcome in ("dropped", "refused") and at_times:
            outcome = "at-times"
        elif outcome == "silent" and link.pair in mute:
            outcome = "mute"
        elif outcome in ("dropped", "silent") and link.ends in late:
            outcome = "late"
        elif outcome == "silent" and link.pair in lossy:
            # Packets between these hosts get lost, so the answer may be lost too. Only if none is lost can another
            # program have taken the call.
            outcome = "at-times"
        elif outcome == NO_PORT and ":" in link.address and not six(link.source):
            outcome = "no-family"
        elif outcome in ("dropped", "no-arp") and strange(link) and not proxied:
            outcome = "wrong-card"
        settled.append(replace(link, outcome=outcome))
    return tuple(link for link in settled if "again" not in link.kinds)


def _mute(answers: Answers) -> set[frozenset[str]]:
    """Return the pairs where every call connects, but the other kernel acknowledges nothing that is sent after that."""
    by_pair: dict[frozenset[str], list[Link]] = {}
    for link in answers.links:
        if link.is_outward and "again" not in link.kinds:
            by_pair.setdefault(link.pair, []).append(link)
    return {
        pair
        for pair, links in by_pair.items()
        if all(link.outcome == "silent" and link.again and not link.moved for link in links)
    }


def calls_near_failures(answers: Answers, links: Iterable[Link]) -> Calls:
    """Return, by caller, all calls of the pairs that share the caller or the called host with a failed call."""
    failed = [link for link in links if not link.ok]
    callers, called = {link.source for link in failed}, {link.target for link in failed}
    pairs = {}
    for source in answers.hosts_with_facts if failed else ():
        wanted = all_calls(answers, source)
        pairs[source] = [call for call in wanted if source in callers or call["host"] in called]
    return pairs


def calls_without_port(answers: Answers, links: Iterable[Link]) -> list[Calls]:
    """Return rounds with one call for each host that lacked a local port: to the rendezvous, then one to each peer."""
    lacking = [link for link in links if link.outcome == NO_PORT]
    rounds: list[Calls] = []
    for source in dict.fromkeys(link.source for link in lacking):
        calls = [call for call in all_calls(answers, source) if {"rendezvous", "data"} & set(call["kinds"])]
        calls.sort(key=lambda call: "rendezvous" not in call["kinds"])
        by_aim = {("rendezvous" in call["kinds"], call["host"]): call for call in reversed(calls)}
        for place, call in enumerate([call for call in calls if call in by_aim.values()][:MOST_ALONE]):
            rounds += [{}] * (place + 1 - len(rounds))
            rounds[place] = {**rounds[place], source: [{**call, "wait": WAIT_S}]}
    return rounds


def replace_portless(links: Iterable[Link], alone: Sequence[Link]) -> tuple[Link, ...]:
    """Return the links; calls made alone replace those that found no local port while many calls were made."""
    tried = {link.source for link in alone}
    again = {link.call for link in alone}
    left = [link for link in links if link.outcome != NO_PORT or link.source not in tried]
    return (*(link for link in left if link.call not in again), *alone)


def slow_calls(answers: Answers) -> Calls:
    """Return, by caller, calls to make one at a time for pairs with a slow payload: the host may just be busy."""
    sent = [link for link in answers.links if link.outcome in ("ok", "slow") and link.size and "data" in link.kinds]
    slow = sorted(
        (link for link in sent if not link.ok or link.both_s > SLOW_S * link.size / PAYLOAD),
        key=lambda link: (link.ok, -link.both_s),
    )
    return _calls_like(slow[:MOST_SUSPECTS], "rate", RATE_SIZE, RATE_WAIT_S)


def long_call(answers: Answers, pair: Pair) -> Call | None:
    """Return a call with a large payload for a pair that passed small ones well; None if not, or with many hosts."""
    if len(answers.facts) <= FEW and all(link.ok and not link.again for link in answers.both_ways(pair)):
        for link in answers.between(*pair, "data")[:1]:
            return call_like(link, "long", LONG_SIZE, LONG_WAIT_S)
    return None


def link_of(source: str, target: Call, result: Call) -> Link:
    """Return the link for a call (`target`) and its result."""
    return Link(
        source=source,
        target=target["host"],
        address=target["address"],
        port=target["port"],
        kinds=tuple(target["kinds"]),
        outcome=_outcome(result),
        out_address=result.get("source", ""),
        size=target["size"],
        moved=_moved(result),
        **{name: result[name] for name in _COPIED_FIELDS if name in result},
    )


def call_like(link: Link, kind: str, size: int, wait_s: float) -> Call:
    """Return a call of another kind to the same host, address and port as a link."""
    where = {"host": link.target, "address": link.address, "port": link.port, "kinds": [kind]}
    return {**where, "id": 0, "size": size, "wait": wait_s}


def _calls_like(links: Iterable[Link], kind: str, size: int | None, wait_s: float) -> Calls:
    """Return, by caller, a call like each of these links. `size`: the payload's size; None: the same as the link's."""
    calls: Calls = {}
    for link in links:
        mine = calls.setdefault(link.source, [])
        mine.append({**call_like(link, kind, link.size if size is None else size, wait_s), "id": len(mine)})
    return calls


def _moved(result: Call) -> int:
    """Return how many bytes had passed in the direction in which the call stopped."""
    return int(result.get("acked" if result["outcome"] == "stall-send" else "received", 0))


def _outcome(result: Call) -> str:
    """Return the outcome of a call. If it carried data, tell whether it was cut or just too slow for our wait."""
    outcome, moved = str(result["outcome"]), _moved(result)
    # Large packets that are lost are sent again. If none was sent again, the other end just accepts data slowly.
    still = result.get("idle_ms", 0) >= STILL_MS
    creeps = outcome == "stall-send" and result.get("sent", 0) > LITTLE and not result.get("again") and not still
    if outcome.startswith("stall") and (moved > SOME or creeps):
        return "cut" if still else "slow"
    reset = outcome == "reset" and result.get("ms")
    return "cut" if reset and max(result.get("acked", 0), moved) > SOME else outcome


def _wanted(answers: Answers, source: str) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield all calls of one host: (kind, host, address, port, payload bytes)."""
    plan, port = answers.plan, answers.request.port
    for address in answers.resolved(source, plan.endpoint) or ():
        if not prediction.is_loopback(address):
            yield "rendezvous", answers.rendezvous_host, address, port, 0
    yield from _own(answers, source)
    for target in answers.hosts_with_facts:
        opened = answers.listened(target, "sampled")
        if target == source or not opened:
            continue
        if target == plan.first:
            for address in answers.resolved(source, plan.store_name) or ():
                if not prediction.is_loopback(address):
                    yield "store", target, address, opened[0], 0
        pick = plan.data[target]
        for between in answers.request.ports if pick.address else ():
            yield "between", target, pick.address, between, 0
        if pick.address and not prediction.is_loopback(pick.address) and pick.problem != "link-local":
            for number, sample in enumerate(opened):
                yield "data", target, pick.address, sample, 0 if number else PAYLOAD
        others = [address for _, address, _ in prediction.reachable(answers.facts[target]) if address != pick.address]
        for address in others[:MOST_OTHERS]:
            yield "other", target, address, opened[0], PAYLOAD
        for address in {pick.address, *others[:1]} - {""}:
            if target != answers.master and not prediction.is_loopback(address) and pick.problem != "link-local":
                yield "hint", target, address, port, 0


def _own(answers: Answers, source: str) -> Iterator[tuple[str, str, str, int, int]]:
    """Yield a host's calls to itself: over loopback, and at the address that its peers use."""
    opened = answers.listened(source, "sampled")
    pick = answers.picks[source]
    mine = {"127.0.0.1", pick.address if not pick.problem else ""} - {""}
    for address in sorted(mine) if opened else ():
        if address in prediction.own_addresses(answers.facts[source]) and "%" not in address:
            yield "self", source, address, opened[0], 0
