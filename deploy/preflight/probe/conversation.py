"""Ask the probes of all hosts in parallel, one phase after the other. This module collects answers; judge.py judges.

It waits while another preflight uses the ports that the probes need.
"""

from __future__ import annotations

import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, replace
from typing import Any

from ...core.errors import DeployError
from ...host.reached import NoAnswer
from .. import networks, prediction, probe_answers, targets
from ..answers import Answers, Link, Pair
from ..checks import bandwidth, link_quality
from ..request import MUSTER, PreflightRequest
from ..targets import Call
from .probe import LIFE_S
from .text import ProbeStream

# How many seconds to wait for each answer. The facts come first: a slow engine needs 25 s to start the container.
FACTS_S, LISTEN_S, CONNECT_S, CLOCK_S = 60.0, 8.0, 12.0, 5.0
# How long to wait for ports of another preflight, which needs them only for some seconds even with all measurements.
OTHERS_S = 30.0
# For each host, a probe stays alive this much longer without a question: in half of the rounds it only answers calls.
ROUND_S = 2 * bandwidth.WAIT_S
# Host -> its answer to a question.
Answered = dict[str, dict[str, Any]]
STANDS_STILL = ("silent", "stall-send", "stall-receive")
CLOCK_ROUNDS = 3


def examine(
    shells: Sequence[ProbeStream],
    request: PreflightRequest,
    faults: Mapping[str, NoAnswer] | None = None,
    measure: bool = False,
    say: Callable[[str], None] = lambda _: None,
    mounts: Mapping[str, Sequence[str]] | None = None,
    choose: bool = True,
) -> Answers:
    """Run all phases with the hosts' probes and return their answers. `shells`: in order; the first is the master.

    faults: a host without a probe -> why; a probe that fails later is added. measure: also measure the rate
    of every pair. say: receives the progress (`facts 3 of 8`), from any thread. mounts: the folders that each host's
    probe tries, by their paths in the run. choose: look for the best network that the hosts share.
    """
    began, run = time.monotonic(), secrets.token_hex(8)
    talk = _Talk(shells, say)
    hosts = tuple(dict.fromkeys([*(shell.name for shell in shells), *(faults or {})]))
    names = [] if prediction.is_address(request.endpoint) else [request.endpoint]
    wanted = {"do": "facts", "run": run, "resolve": names, "life": LIFE_S + ROUND_S * len(hosts)}
    facts = talk.ask(lambda host: {**wanted, "host": host, "mounts": list((mounts or {}).get(host, ()))}, FACTS_S)
    answers = Answers(request.decided(facts), hosts, facts=facts)
    listens = _listens(talk, answers)
    # If a host was lost meanwhile, its facts are dropped: otherwise its peers would seem to be at fault.
    facts = {host: facts[host] for host in facts if host in listens}
    answers = replace(answers, facts=facts, listens=listens)
    clocks = _clocks(talk)
    answers = replace(answers, links=_connect(talk, answers), clocks=clocks)
    answers = _on_the_best_network(talk, answers) if choose else answers
    answers = replace(answers, links=(*answers.links, *_rates(talk, answers)))
    if measure:
        answers = replace(answers, links=(*answers.links, *_bandwidth(talk, answers)))
    control, again = _firewalls(talk, answers)
    answers = replace(answers, links=(*answers.links, *again), control=control)
    answers = replace(answers, often=_often(talk, answers))
    answers = replace(answers, links=targets.with_final_outcomes(answers))
    talk.ask(lambda host: {"do": "quit"}, 0)
    seconds = round(time.monotonic() - began, 2)
    return replace(answers, faults={**(faults or {}), **talk.lost}, seconds=seconds)


def _listens(talk: _Talk, answers: Answers) -> Answered:
    """Let each probe listen, and return its answer; first wait until other preflights have released the ports.

    While it waits, this preflight releases its own ports: two preflights that each hold a port on one host would
    otherwise wait for each other forever.
    """
    end = time.monotonic() + OTHERS_S
    while True:
        listens = talk.ask(lambda host: _listen(answers, host), LISTEN_S)
        failed = [(host, *each) for host, listen in listens.items() for each in listen.get("failed", {}).items()]
        held = [(host, port) for host, port, fault in failed if fault.get("probe")]
        if not held or time.monotonic() > end:
            return listens
        talk.say(f"waiting: another preflight has port {held[0][1]} on {held[0][0]}")
        talk.ask(lambda host: {"do": "listen", "range": answers.facts[host]["port_range"], "samples": 0}, LISTEN_S)
        time.sleep(random.uniform(0.3, 1.5))


def _on_the_best_network(talk: _Talk, answers: Answers) -> Answers:
    """If the hosts share several networks, measure each and call all links again on the best one.

    Otherwise return the answers unchanged.
    """
    choices = [_measured(talk, answers, network) for network in networks.candidates(answers)]
    if not choices:
        return answers
    answers = replace(answers, networks=tuple(map(asdict, choices)))
    best = networks.best(choices, answers.hosts_with_facts)
    if best is None or best is choices[0]:
        return answers
    request = replace(
        answers.request, endpoint=best.places[answers.hosts_with_facts[0]][1], interfaces=networks.interfaces(best)
    )
    answers = replace(answers, request=request, links=())
    return replace(answers, links=_connect(talk, answers))


def _measured(talk: _Talk, answers: Answers, network: networks.Network) -> networks.Network:
    """Measure a network's rate, with one pair at a time on each host, and with more data if the network is fast."""
    seen, links = networks.measured(answers, network, ()), list[Link]()
    closed = {frozenset(pair) for pair in seen.closed}
    wanted = [pair for pair in networks.pairs_of(network) if frozenset(pair) not in closed]
    for size in networks.SIZES:

        def call(pair: Pair, size: int = size) -> Call | None:
            return networks.call(answers, network, pair[1], size) if pair in wanted else None

        links += _in_rounds(talk, list(network.places), call)
        seen = networks.measured(answers, network, links)
        if seen.mbit < networks.FAST_MBIT:
            break
    return seen


def _firewalls(talk: _Talk, answers: Answers) -> tuple[Answered, Collection[Link]]:
    """Find the firewall rules of the hosts with failed calls; return these, and the calls that were repeated.

    It reads the rules, repeats the calls, and reads the rules again: a rule whose count grew has dropped our packets.
    """
    failed = {host for link in answers.links if not link.ok or link.again for host in link.ends}
    if not failed:
        return {}, ()
    before = talk.ask(lambda host: {"do": "firewall"}, LISTEN_S, failed)
    links = _called(talk, targets.calls_to_repeat(answers))
    after = (
        talk.ask(lambda host: {"do": "firewall"}, LISTEN_S, failed)
        if any(rules["rules"] for rules in before.values())
        else before
    )
    control = {}
    for host, rules in after.items():
        counts = dict(zip(before[host]["rules"], before[host].get("hits", ()), strict=False))
        now = zip(rules["rules"], rules.get("hits", ()), strict=False)
        grown = [rule for rule, count in now if count > counts.get(rule, count)]
        control[host] = {"firewall": {**rules, "grown": grown}}
    return control, links


def _listen(answers: Answers, host: str) -> Call:
    plan, facts = answers.plan, answers.facts
    toward = {plan.endpoint} if prediction.is_address(plan.endpoint) else set()
    if host == answers.hosts_with_facts[0]:
        peers = [next(iter(prediction.reachable(facts[peer])), None) for peer in answers.hosts_with_facts[1:3]]
        toward = {row[1] for row in peers if row}
    names = {plan.store_name, *(str(facts[peer].get("fqdn") or "") for peer in answers.hosts_with_facts)} - {""}
    names = {name for name in names if not prediction.is_address(name)} if answers.request.style != MUSTER else set()
    return {
        "do": "listen",
        "ports": [answers.request.port, *answers.request.ports],
        "range": facts[host]["port_range"],
        "samples": targets.SAMPLES,
        "toward": sorted(toward),
        "peers": sorted({pick.address for name, pick in plan.data.items() if name != host} - {""}),
        "resolve": sorted(names) if len(names) < 8 else [plan.store_name],
    }


def _connect(talk: _Talk, answers: Answers) -> tuple[Link, ...]:
    """Find out which host reaches which.

    A call that connects and then stalls is repeated, because the path may be broken or the host was just too busy.
    Calls for which the host had no free local port are repeated one at a time, because a run opens fewer connections at
    the same time. With many hosts, each pair makes one call first, and all its other calls only if that one failed.
    """
    if len(answers.facts) > targets.MANY:
        first = _called(talk, {host: targets.essential_calls(answers, host) for host in answers.facts})
        again = targets.calls_near_failures(answers, first)
    else:
        again = {host: targets.all_calls(answers, host) for host in answers.facts}
        first = _called(talk, again)
        still = {link.call for link in first if link.outcome in STANDS_STILL}
        for host, calls in again.items():
            again[host] = [call for call in calls if (host, call["host"], call["address"], call["port"]) in still]
    links = {link.call: link for link in (*first, *_called(talk, again))}.values()
    alone = [_called(talk, call) for call in targets.calls_without_port(answers, links)]
    return targets.replace_portless(links, [link for called in alone for link in called])


def _called(talk: _Talk, wanted: Mapping[str, Sequence[Call]]) -> list[Link]:
    """Make the calls; return their links, ordered by caller and target. A call without a result has no link."""
    hosts = [host for host in wanted if wanted[host]]
    asked = talk.ask(lambda host: {"do": "connect", "targets": wanted[host]}, CONNECT_S, hosts) if hosts else {}
    links = []
    for host, answer in asked.items():
        by_id = {result["id"]: result for result in answer["results"]}
        links += [targets.link_of(host, call, by_id[call["id"]]) for call in wanted[host] if call["id"] in by_id]
    return links


def _often(talk: _Talk, answers: Answers) -> tuple[tuple[str, str, int, int], ...]:
    """Call the pairs of targets.repeated_calls many times; return each pair's number of answered and of all calls."""
    links = _called(talk, targets.repeated_calls(answers))
    answered = Counter(link.ends for link in links if link.outcome == "ok")
    return tuple((*ends, answered[ends], calls) for ends, calls in Counter(link.ends for link in links).items())


def _rates(talk: _Talk, answers: Answers) -> list[Link]:
    """Send larger payloads between pairs whose small payloads were slow.

    Only one call runs at a time: two would disturb each other. A slow call is repeated once, because the host may have
    been busy. If no pair was slow, each pair makes one long call, in rounds with at most one call for each host.
    """
    links = []
    for host, calls in targets.slow_calls(answers).items():
        for call in calls:
            tried = _called(talk, {host: [call]})
            if any(link_quality.mbit_of(link) < link_quality.SLOWISH_MBIT for link in tried):
                tried += _called(talk, {host: [call]})
            links += tried
    if not links:
        links += _in_rounds(talk, answers.hosts_with_facts, lambda pair: targets.long_call(answers, pair))
    return links


def _bandwidth(talk: _Talk, answers: Answers) -> list[Link]:
    """Measure the rates of all pairs; measure slow pairs once more, one by one."""

    def call(pair: Pair) -> Call | None:
        return bandwidth.call(answers, pair)

    rates = _in_rounds(talk, answers.hosts_with_facts, call)
    slow = bandwidth.again(replace(answers, links=tuple(rates)))
    return rates + [link for pair in slow for link in _in_rounds(talk, pair, call)]


def _in_rounds(talk: _Talk, hosts: Sequence[str], call: Callable[[Pair], Call | None]) -> list[Link]:
    """Make the call that `call` returns for each pair, if any, in rounds with at most one call for each host."""
    links = []
    for pairs in bandwidth.rounds(hosts):
        calls = {pair[0]: made for pair in pairs if (made := call(pair))}
        links += _called(talk, {host: [made] for host, made in calls.items()})
    return links


def _clocks(talk: _Talk) -> dict[str, tuple[float, float]]:
    """Measure how far each host's clock is ahead of this machine's; of several tries, the fastest answer counts.

    This machine's clock is read only once: a laptop that wakes up may set it, and then the hosts would seem to differ.
    """
    best, started = dict[str, tuple[float, float]](), time.time() - time.monotonic()
    for _ in range(CLOCK_ROUNDS):
        for host, answer in talk.ask(lambda host: {"do": "clock"}, CLOCK_S).items():
            asked, received = talk.times[host]
            half = (received - asked) / 2
            if host not in best or half < best[host][1]:
                best[host] = (round(answer["time"] - started - (asked + half), 4), round(half, 4))
    return best


class _Talk:
    """Asks all hosts one question at a time. A host that has failed is not asked again."""

    def __init__(self, shells: Sequence[ProbeStream], say: Callable[[str], None]) -> None:
        self.shells, self.say = {shell.name: shell for shell in shells}, say
        self.lost: dict[str, NoAnswer] = {}
        self.times: dict[str, tuple[float, float]] = {}

    def ask(self, question: Callable[[str], Call], wait_s: float, only: Collection[str] = ()) -> Answered:
        """Ask the hosts; return their answers in the hosts' order. `wait_s` 0: do not wait for answers.

        `only`: ask only these hosts.
        """
        by_host: Answered = {}

        def tell(what: Call) -> None:
            if wait_s:
                self.say(f"{what['do']} {len(by_host)} of {len(hosts)}")

        def ask_host(host: str) -> None:
            try:
                asked, what = time.monotonic(), question(host)
                tell(what)
                self.shells[host].send(what)
                if wait_s:
                    answer = probe_answers.read(what["do"], self.shells[host].read(wait_s))
                    self.times[host] = (asked, time.monotonic())
                    by_host[host] = answer
                    tell(what)
            except DeployError as failed:
                self.lost[host] = NoAnswer.of_probe(failed)

        hosts = [host for host in self.shells if host not in self.lost and (not only or host in only)]
        threads = [threading.Thread(target=ask_host, args=(host,), daemon=True) for host in hosts]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return {host: by_host[host] for host in hosts if host in by_host}
