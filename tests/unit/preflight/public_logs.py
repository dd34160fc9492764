"""Excerpts of public NCCL logs, and the score of the NCCL log reader (deploy/preflight/nccl_log.py) on each.

For each excerpt, public_logs.txt has its source, the facts that a person reads in it, and its lines. The person wrote
the facts down before the reader saw the lines; a fact that is not listed is not in the log, and `?` means that it is
not judged. Hosts and addresses are replaced, and most lines are left out. A warning without a host before it comes from
the thread's title. A seed draws the excerpts that are only for the score; developers may look at the others, and tests
hold those.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from pathlib import Path

from deploy.preflight import nccl_log

FILE = Path(__file__).resolve().parent / "public_logs.txt"
SEED, OF_SCORE = 434956, 40
FACTS = ("network", "sockets", "devices", "direct", "inside", "reason", "version")
# Facts that the person wrote down and that no reader reports.
UNREAD = {"nvls", "fault"}
RIGHT, UNSURE, WRONG, UNJUDGED = "right", "could not tell", "wrong", "?"
_WORDS = {True: "yes", False: "no", None: ""}


@dataclass(frozen=True)
class Excerpt:
    """One log, with the facts that a person reads in it."""

    name: str
    source: str
    truth: dict[str, str]
    lines: list[str]

    def marks(self) -> dict[str, str]:
        """For each judged fact: right, could not tell, or wrong."""
        read = said(self.lines)
        return {
            fact: mark(fact, self.truth.get(fact, ""), read[fact]) for fact in FACTS if self.truth.get(fact) != UNJUDGED
        }

    @property
    def mark(self) -> str:
        """Wrong if one fact is wrong; right if all are right."""
        marks = set(self.marks().values())
        return WRONG if WRONG in marks else UNSURE if UNSURE in marks else RIGHT


def load() -> list[Excerpt]:
    """All excerpts, in the file's order."""
    found = []
    for block in f"\n{FILE.read_text()}".split("\n=== ")[1:]:
        head, facts, *lines = block.splitlines()
        name, _, source = head.partition(" | ")
        truth = dict(fact.split("=", 1) for fact in facts.split("; ") if fact)
        assert not set(truth) - set(FACTS) - UNREAD, (name, truth)
        found.append(Excerpt(name, source, truth, lines))
    return found


def split() -> tuple[list[Excerpt], list[Excerpt]]:
    """The excerpts that developers may look at, and those for the score."""
    excerpts = load()
    drawn = set(random.Random(SEED).sample([each.name for each in excerpts], OF_SCORE))
    return [each for each in excerpts if each.name not in drawn], [each for each in excerpts if each.name in drawn]


def said(lines: list[str]) -> dict[str, str]:
    """What the reader reports about the lines, by fact, in the file's notation; empty if it reports nothing."""
    log = nccl_log.read(lines)
    talks = log.sockets or log.network or log.between
    inside = {way.partition("/")[0] for way in log.ways.values() if not way.startswith(nccl_log.NET)}
    return {
        "network": log.network,
        "sockets": _WORDS[log.sockets] if talks else "",
        "devices": ",".join(log.devices[number] for number in sorted(log.devices)),
        "direct": _WORDS[log.direct],
        "inside": ",".join(sorted(inside)),
        "reason": log.reason,
        "version": log.version,
    }


def mark(fact: str, truth: str, read: str) -> str:
    """Compare one fact; a reason is right if it contains the true words."""
    same = bool(truth) and truth in read if fact == "reason" else truth == read
    return RIGHT if same or truth == read else UNSURE if truth and not read else WRONG
