"""Several 'hosts' on one GPU meet through real agents, sum correctly, and use the interface that they were given.

NCCL rejects two ranks of one host on one GPU. If each rank has its own NCCL_HOSTID, and uses only sockets, NCCL treats
them as separate hosts; from 2.30 on, NCCL_MULTI_RANK_GPU_ENABLE=1 allows it officially (NCCL's init.cc,
initTransportsRank).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import ExitStack

from .. import network
from ..bench import MULTI_RANK, Bench
from ..finding import NOT_TRIED, Finding, judge, untried
from ..network import Place
from ..nodes import Late, Run

TITLE, LIMIT_S = "several hosts on one GPU", 100
_MEET_S = 80.0
REFUSAL = re.compile(r"Duplicate GPU detected|Multiple Ranks are using the same GPU")
_USING = re.compile(r"(?:Bootstrap|NET/\w+) ?: .*?Using (.*)")
_INTERFACE = re.compile(r"([\w.@-]+):[\da-fA-F.:]+<\d+>")


def run(bench: Bench) -> Iterator[Finding]:
    """Separate hosts, each in its own network if that is allowed; then ranks that share a GPU as one host."""
    why = network.why_not_allowed()
    if why:
        yield untried("a network for each host", f"{why}; all hosts share the loopback interface")
    for count in (2, 4) if bench.gpus else (3,):
        bench.say(f"{count} hosts meet")
        with ExitStack() as stack:
            places: Sequence[Place] = (
                [Place()] * count if why else stack.enter_context(network.separate_hosts(count)).places
            )
            yield from _meet(bench, stack, count, places)
    if bench.gpus:
        yield from _as_one_host(bench)
    else:
        yield untried("ranks that share a GPU as one host", "no GPU")


def _meet(bench: Bench, stack: ExitStack, count: int, places: Sequence[Place]) -> Iterator[Finding]:
    name = f"hosts-{count}"
    hosts = stack.enter_context(bench.hosts(name, bench.script("meet", bench.backend), places))
    hosts.finish(_MEET_S)
    seen = hosts.records_of_ranks()
    backends, worlds = sorted({line["backend"] for line in seen}), sorted({line["world"] for line in seen})
    right = len(seen) == count and all(line["right"] for line in seen) and worlds == [count]
    yield judge(
        f"{count} hosts: rendezvous, all_reduce",
        right and backends == [bench.backend],
        f"world {worlds}, {', '.join(backends)}, sums {'right' if right else 'WRONG'}",
        f"world {count}, {bench.backend}",
        ranks=seen,
    )
    yield _interface(bench, name, places, hosts)


def _interface(bench: Bench, name: str, places: Sequence[Place], hosts: Run) -> Finding:
    given = {place.interface for place in places}
    strays = [
        f"rank {line['rank']}: {address}"
        for line, place in zip(hosts.records_of_ranks(), places, strict=False)
        for address in line["addresses"]
        if address not in (place.address, "127.0.0.1")
    ]
    logs = [bench.folder / f"nccl-{name}-{number}.log" for number in range(len(places))]
    used = {interface for log in logs if log.exists() for interface in interfaces(log.read_text(errors="replace"))}
    own = all(place.address in line["addresses"] for line, place in zip(hosts.records_of_ranks(), places, strict=False))
    named = f"NCCL names {', '.join(sorted(used))}" if used else "NCCL names none" if bench.gpus else ""
    measured = "; ".join(filter(None, [", ".join(strays) or "own addresses alone", named]))
    good = own and not strays and used <= given
    return judge(f"{len(places)} hosts: interface", good, measured, ", ".join(sorted(given)))


def _as_one_host(bench: Bench) -> Iterator[Finding]:
    """Two ranks on one GPU that NCCL treats as one host: it rejects them; from 2.30 on, an option allows them."""
    bench.say("2 ranks share a GPU as one host")
    arguments, places = bench.script("meet", bench.backend), [Place(), Place()]
    with ExitStack() as stack:
        refused = stack.enter_context(bench.hosts("one-host", arguments, places, apart=False))
        asked = {MULTI_RANK: "1"}
        shared = (
            stack.enter_context(bench.hosts("shared", arguments, places, apart=False, variables=asked))
            if bench.shares_gpu
            else None
        )
        refused.wait(lambda: None not in refused.codes(), "an end", _MEET_S)
        own = [log.read_text(errors="replace") for log in bench.folder.glob("nccl-one-host-*.log")]
        words = REFUSAL.search("\n".join([refused.logs(), *own]))
        good = bool(words) and 0 not in refused.codes()
        text = words[0] if words else f"exit codes {refused.codes()}, and no such words"
        yield judge("2 ranks on one GPU are refused in words", good, text, "NCCL's refusal in the log")
        if shared is None:
            yield untried(f"{MULTI_RANK}=1", "NCCL has it from 2.30 on")
            return
        try:
            shared.finish(_MEET_S)
        except Late as fault:  # Muster does not need this feature of NCCL
            yield Finding(f"{MULTI_RANK}=1", NOT_TRIED, f"NCCL does not bear it here: {fault}", words=fault.words)
            return
        seen = shared.records_of_ranks()
        good = len(seen) == 2 and all(line["right"] for line in seen)
        yield judge(f"{MULTI_RANK}=1: all_reduce", good, f"{len(seen)} ranks", "2 ranks, sums right", ranks=seen)


def interfaces(log: str) -> set[str]:
    """The interfaces that NCCL uses, according to its own log."""
    return {name for listed in _USING.findall(log) for name in _INTERFACE.findall(listed)}
