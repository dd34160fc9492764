"""Two or three hosts with two to four networks: does preflight choose the best one that connects everybody?

python -m benchmarks.preflight_networks                 40 layouts, a fresh seed
python -m benchmarks.preflight_networks --write         the same, into lab/scores/preflight-networks.md
python -m benchmarks.preflight_networks --only 12.3     one layout

Run as root. The hosts are network namespaces; each network has a rate limited by tbf, and some networks are closed
between some hosts, or do not exist on all of them. The rivals: the address that torch takes by default (gloo: the
address of the host's own name), and the interface that NCCL takes by its rules (the first that is not docker*, lo*,
virbr*).
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import time
from dataclasses import dataclass
from pathlib import Path

from deploy.preflight import PreflightRequest, judge, networks, prediction
from deploy.preflight.answers import Answers
from lab import network as lab_network
from lab import trial
from lab.fault import Fault
from lab.network import Lab, must

PAGE = Path(__file__).resolve().parents[1] / "lab/scores/preflight-networks.md"
# The page continues with the manual trials.
BY_HAND = "## Behind 1:1 address translation"
COUNT = 40
# Mbit/s; the rates differ by a factor of at least three, because `tc` does not hold a rate exactly under load.
RATES = (8, 30, 100, 400, 1500)
NAMES = ("eth0", "eth1", "ens5", "enp1s0f0")
NETS = ("10.77.0", "192.168.50", "172.20.9", "100.64.3")


@dataclass(frozen=True)
class Layout:
    """One drawn cluster.

    For each network: its rate, the closed pairs of hosts, and the hosts that do not have it.
    """

    id: str
    count: int
    rates: tuple[int, ...]
    closed: dict[int, tuple[tuple[int, int], ...]]
    lacking: dict[int, tuple[int, ...]]

    @property
    def right(self) -> str:
        """The best network that connects all hosts; empty if none does."""
        whole = [
            place for place in range(len(self.rates)) if not self.closed.get(place) and not self.lacking.get(place)
        ]
        return NAMES[max(whole, key=lambda place: self.rates[place])] if whole else ""

    @property
    def idle(self) -> str:
        """The fastest network, if it does not connect all hosts: preflight must name it, and what is wrong with it."""
        shared = [place for place in range(len(self.rates)) if self.count - len(self.lacking.get(place, ())) > 1]
        fastest = NAMES[max(shared, key=lambda place: self.rates[place])]
        return fastest if fastest != self.right else ""

    @property
    def words(self) -> str:
        """The layout in words, for the page."""
        shown = []
        for place, rate in enumerate(self.rates):
            closed = ", closed " + " ".join(f"{a}-{b}" for a, b in self.closed[place]) if self.closed.get(place) else ""
            lacks = f", not on {' '.join(map(str, self.lacking[place]))}" if self.lacking.get(place) else ""
            shown.append(f"{NAMES[place]} {rate} Mbit/s{closed}{lacks}")
        return f"{self.count} hosts; {'; '.join(shown)}"


def draw(seed: int, number: int) -> Layout:
    """Draw a layout. The rates differ, so that one network is the best."""
    chance = random.Random(f"{seed}.{number}")
    count, nets = chance.choice((2, 3)), chance.choice((2, 3, 4))
    rates = tuple(chance.sample(RATES, nets))
    closed: dict[int, tuple[tuple[int, int], ...]] = {}
    lacking: dict[int, tuple[int, ...]] = {}
    pairs = [(a, b) for a in range(count) for b in range(a + 1, count)]
    for place in range(nets):
        if chance.random() < 0.3:
            closed[place] = tuple(sorted(chance.sample(pairs, chance.randint(1, len(pairs)))))
        elif place and chance.random() < 0.15:
            lacking[place] = (chance.randrange(count),)
    return Layout(f"{seed}.{number}", count, rates, closed, lacking)


def build(lab: Lab, layout: Layout) -> None:
    """Give the hosts their networks."""
    for place in range(1, len(layout.rates)):
        lab.network(NAMES[place], NETS[place])
    for place, rate in enumerate(layout.rates):
        for number, host in enumerate(lab.hosts):
            shape = ["root", "tbf", "rate", f"{rate}mbit", "burst", "64kb", "latency", "50ms"]
            must("tc", "-netns", host.space, "qdisc", "replace", "dev", NAMES[place], *shape)
            if number in layout.lacking.get(place, ()):
                host.ip(f"link del {NAMES[place]}")
        for first, other in layout.closed.get(place, ()):
            for mine, theirs in ((first, other), (other, first)):
                rule = f"-w -A INPUT -i {NAMES[place]} -s {NETS[place]}.{10 + theirs} -j DROP"
                lab.hosts[mine].run("iptables", *rule.split())


def ours(layout: Layout, answers: Answers) -> str:
    """The interface on which Muster lets the hosts meet; empty if it refuses because no network connects all hosts."""
    verdict = judge(answers)
    if not verdict.ok and (not verdict.network or verdict.network.startswith(networks.NONE)):
        return ""
    chosen = {pick.interface for pick in answers.plan.data.values()}
    return chosen.pop() if len(chosen) == 1 else "/".join(sorted(chosen))


def theirs(answers: Answers, backend: str) -> str:
    """The default choice of torch (gloo) or NCCL, predicted from their rules."""
    request = PreflightRequest(style="torchrun", endpoint=NETS[0] + ".10", backend=backend)  # type: ignore[arg-type]
    facts = {host: {**answers.facts[host], "environment": {}} for host in answers.hosts_with_facts}
    picks = prediction.plan(request, facts, {}).data
    names = {pick.interface for pick in picks.values()}
    return names.pop() if len(names) == 1 else "/".join(sorted(names))


def tried(layout: Layout) -> tuple[str, str, str, str, float]:
    """The choices of Muster, torch and NCCL; what Muster says; Muster's seconds."""
    run = Fault("networks")
    with Lab(layout.count, "4", NETS[0]) as lab:
        build(lab, layout)
        began = time.monotonic()
        answers = trial.answers(lab, run)
        seconds = time.monotonic() - began
    verdict = judge(answers)
    said = verdict.network or (verdict.first.text if verdict.first else "one network")
    return ours(layout, answers), theirs(answers, "gloo"), theirs(answers, "nccl"), said, seconds


def main() -> None:
    """Draw layouts, try them, print; with --write, write the page."""
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--seed", type=int, default=random.SystemRandom().randrange(10**6))
    asked.add_argument("--only", default="")
    asked.add_argument("--write", action="store_true")
    given = asked.parse_args()
    if lacking := lab_network.missing():
        sys.exit(f"error: {lacking}")
    ids = [tuple(map(int, given.only.split(".")))] if given.only else [(given.seed, n) for n in range(COUNT)]
    rows, right, idle = [], {"Muster": 0, "torch": 0, "NCCL": 0}, list[bool]()
    for seed, number in ids:
        layout = draw(seed, number)
        mine, torch, nccl, said, seconds = tried(layout)
        for who, choice in (("Muster", mine), ("torch", torch), ("NCCL", nccl)):
            right[who] += choice == layout.right
        if layout.idle:
            idle.append(bool(re.search(rf"{layout.idle} \([^)]*\) is (closed between|not on)", said)))
        cells = (layout.id, layout.words, layout.right or "none", mine or "none", torch, nccl, f"{seconds:.1f}")
        rows.append(f"| {' | '.join(cells)} |")
        print(rows[-1], "\n    ", said, file=sys.stderr, flush=True)
    head = [f"{who}: {count} of {len(ids)}" for who, count in right.items()]
    text = "\n".join(
        [
            f"{'; '.join(head)}. The fastest network lies idle, and Muster says why: {sum(idle)} of {len(idle)}.",
            "",
            "| layout | networks | best | Muster | torch | NCCL | s |",
            "|---|---|---|---|---|---|---|",
            *rows,
        ]
    )
    print(text)
    if given.write:
        by_hand = PAGE.read_text().partition(BY_HAND)
        PAGE.write_text(f"{HEAD}\n{text}\n\n{by_hand[1]}{by_hand[2]}")


HEAD = """\
# On which network do the hosts meet?

Drawn clusters whose hosts have two to four networks, made by `python -m benchmarks.preflight_networks --write`. Each
network has a rate; some are closed between some hosts, or not on all of them. Right is the fastest network that
connects everybody; where none does, right is to say so. torch's choice is gloo's (the address of the host's own name),
NCCL's the first interface by its rules; both as `deploy/preflight/prediction.py` predicts them.
Seconds: the look alone.
"""


if __name__ == "__main__":
    main()
