"""Whether `fab preflight --bandwidth` names the slow host or link: trials in the fault laboratory, 3 to 8 hosts.

    python -m benchmarks.preflight_bandwidth       one line a trial, the figures at the end

All hosts have 1 Gbit/s each way; one host, or one link, has a tenth of it; in some trials nothing is slow.
"""

from __future__ import annotations

import random
import sys
import time
from dataclasses import dataclass

from deploy.preflight import judge
from deploy.preflight.checks import bandwidth
from lab import fault, network, trial

TRIALS, SEED, COUNTS = 48, 5, (3, 4, 5, 6, 7, 8)
FAST, TENTH = "1gbit", "100mbit"
KINDS = ("nothing", "host", "host sends", "host receives", "link", "link one way")
RUN = fault.Fault("bandwidth", "", lambda lab, host: None)


@dataclass(frozen=True)
class Tried:
    """One trial: what was slow and what was named (hosts; of a link its two ends), rounds and seconds it took."""

    count: int
    kind: str
    slow: tuple[str, ...]
    named: tuple[tuple[str, ...], ...]
    rounds: int
    seconds: float

    @property
    def right(self):
        """The slow one is named and nothing else; of a link one way, the way too."""
        wanted = [self.slow] if self.slow else []
        normal = [tuple(sorted(named)) if self.kind == "link" else named for named in self.named]
        return normal == wanted and self.rounds == self.count - 1 + self.count % 2


def slow_down(lab, kind, ends):
    """Shape all hosts, and slow down what the kind says; gives the names that should be told."""
    first, other = ends
    ways = {"host": ("out", "in"), "host sends": ("out",), "host receives": ("in",)}.get(kind, ())
    for host in lab.hosts:
        for way in ("out", "in"):
            lab.rate(host, TENTH if host is first and way in ways else FAST, way)
    if kind in ("link", "link one way"):
        lab.rate_between(first, other, FAST, TENTH)
    if kind == "link":
        lab.rate_between(other, first, FAST, TENTH)
    names = (first.name,) if ways else (first.name, other.name) if kind.startswith("link") else ()
    return tuple(sorted(names)) if kind == "link" else names


def attempt(count, kind, chance):
    """One trial."""
    with network.Lab(count) as lab:
        slow = slow_down(lab, kind, chance.sample(lab.hosts, 2))
        began = time.monotonic()
        answers = trial.answers(lab, RUN, measure=True)
        findings = [finding for finding in judge(answers).findings if finding.cause == "link-slow"]
    rounds = len(list(bandwidth.rounds([host.name for host in lab.hosts])))
    named = tuple(finding.link or finding.hosts for finding in findings)
    return Tried(count, kind, slow, named, rounds, round(time.monotonic() - began, 1))


def measure():
    """All trials, one after the other: two at once would measure each other."""
    chance, tried = random.Random(SEED), []
    for number in range(TRIALS):
        trial = attempt(chance.choice(COUNTS), KINDS[number % len(KINDS)], chance)
        tried.append(trial)
        print(f"{'right' if trial.right else 'WRONG'} {trial.count} hosts, {trial.kind}: "
              f"slow {trial.slow or 'nothing'}, named {trial.named or 'nothing'}, "
              f"{trial.rounds} rounds, {trial.seconds} s", flush=True)  # fmt: skip
    return tried


def rows(tried):
    """Lines of the table of figures: (what, measured, reach, met)."""
    slow = [trial for trial in tried if trial.slow]
    right, quiet = [trial for trial in slow if trial.right], [trial for trial in tried if not trial.slow]
    false = [trial for trial in quiet if not trial.right]
    return [
        (f"bandwidth in N - 1 rounds (N where odd), {min(COUNTS)} to {max(COUNTS)} hosts: a 10 × slower host or link "
         "named, and nothing else", f"{len(right)} of {len(slow)} ({100 * len(right) / len(slow):.1f} %)", "≥ 95 %",
         len(right) >= 0.95 * len(slow)),
        ("bandwidth, nothing slow: hosts or links named", f"in {len(false)} of {len(quiet)} trials", "none",
         not false),
    ]  # fmt: skip


if __name__ == "__main__":
    if lacking := network.missing():
        sys.exit(f"error: {lacking}")
    for what, measured, reach, met in rows(measure()):
        print(f"{'met' if met else 'NOT MET'}: {what}: {measured} (reach {reach})")
