"""A table of who reaches whom, and the fewest hosts that explain its failed cells. Pure.

A column is the host that is called, a row the host that calls, a cell the link between the two.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from . import prediction
from .answers import Answers, pairs

Pair = tuple[str, str]
MOST_LINKS = 3
ALL, MEET, DATA = "all", "meet", "data"


@dataclass(frozen=True)
class Cell:
    """How one host reaches another: the outcome for the rendezvous port, the same port where it is only a hint, the
    data ports, and the host's other interfaces. Empty where nothing was tried."""

    meet: str
    hint: str
    data: str
    other: str

    @property
    def tried(self) -> list[str]:
        """All outcomes there are."""
        return [outcome for outcome in (self.meet, self.hint, self.data, self.other) if outcome]

    @property
    def dead(self) -> bool:
        """Nothing at all got through."""
        return bool(self.tried) and "ok" not in self.tried

    def of(self, what: str) -> str:
        """The outcome that counts for a kind of trouble; for ALL the first bad one of a cell that is dead."""
        if what == ALL:
            return self.tried[0] if self.dead else "ok" if self.tried else ""
        return (self.meet or self.hint) if what == MEET else self.data


@dataclass(frozen=True)
class Blame:
    """Cells and the hosts that explain them: the ones called, the ones that call, or the two ends of a link."""

    hosts: tuple[str, ...]
    cells: tuple[Pair, ...]
    outgoing: bool = False
    link: Pair | None = None


def table(answers: Answers) -> dict[Pair, Cell]:
    """Every ordered pair of the hosts that answered."""
    return {pair: _cell(answers, *pair) for pair in pairs(answers.hosts_with_facts)}


def blame(hosts: Sequence[str], cells: dict[Pair, str], bad: Collection[Pair]) -> list[Blame]:
    """`cells`: outcomes of what was tried, `bad`: those to explain. Columns before rows, both before single links."""
    if not bad:
        return []
    columns = [host for host in hosts if _full([pair for pair in cells if pair[1] == host], bad, hosts)]
    rows = [host for host in hosts if _full([pair for pair in cells if pair[0] == host], bad, hosts)]
    by_column = [pair for pair in bad if pair[1] in columns]
    by_row = [pair for pair in bad if pair[0] in rows]
    if len(by_row) == len(bad) and (len(by_column) < len(bad) or len(rows) < len(columns)):
        return [Blame(tuple(rows), tuple(by_row), outgoing=True)]
    causes = [Blame(tuple(columns), tuple(by_column))] if columns else []
    left = [pair for pair in bad if pair not in by_column]
    out = [pair for pair in left if pair in by_row]
    if out:
        causes.append(Blame(tuple(dict.fromkeys(pair[0] for pair in out)), tuple(out), outgoing=True))
    return causes + _singles([pair for pair in left if pair not in out])


def _full(tried: list[Pair], bad: Collection[Pair], hosts: Sequence[str]) -> bool:
    """All that was tried is bad; of more than two hosts, one cell alone is a link."""
    return bool(tried) and all(pair in bad for pair in tried) and (len(tried) > 1 or len(hosts) == 2)


def _singles(bad: list[Pair]) -> list[Blame]:
    blames, seen = [], set[frozenset[str]]()
    for pair in bad:
        if frozenset(pair) in seen:
            continue
        seen.add(frozenset(pair))
        both = tuple(cell for cell in bad if set(cell) == set(pair))
        blames.append(Blame(pair if len(both) > 1 else (pair[1],), both, link=pair))
    if len(blames) > MOST_LINKS:  # no list of single links, but a network that is in pieces
        return [Blame(tuple(sorted({host for pair in bad for host in pair})), tuple(bad))]
    return blames


def _cell(answers: Answers, source: str, target: str) -> Cell:
    pick, facts = answers.plan.data[target], answers.facts[target]
    # What an interface that is down brings along is no news of the link.
    down = "interface-down" in (pick.problem, answers.plan.data[source].problem)
    own = prediction.own_addresses(facts)

    def outcome(kind: str) -> str:
        if down and kind in ("hint", "data"):
            return ""
        tried = [link for link in answers.between(source, target, kind) if link.address in own or kind == "rendezvous"]
        if kind == "other":
            # Another family on the same interface is no other way for who goes by interfaces.
            tried = [link for link in tried if prediction.interface_of(facts, link.address) != pick.interface]
        if kind == "hint":
            tried = [link for link in tried if link.address == pick.address] or tried
        bad = [link.outcome for link in tried if not link.ok and not link.outcome.startswith("stall")]
        if kind != "data" and len(bad) < len(tried):
            return "ok"
        return bad[0] if bad else "ok" if tried else ""

    return Cell(outcome("rendezvous"), outcome("hint"), outcome("data"), outcome("other"))
