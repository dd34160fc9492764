"""Findings that last while the run trains, and do not end it. Pure; called by the inquest (findings.py).

A rank or a link that holds up all others, ranks that no process group joins, replicas whose weights differ, a clock
that jumped, a stopped process that watches ranks.
"""

from __future__ import annotations

from collections import Counter

from ...causes.end_causes import Cause
from ...core.text import ranks_in_words
from ..state.evidence import Evidence
from . import slow
from .causes import Finding

_CLOCK_JUMP_S = 10.0
# A single rank may train something alone while the others wait; and the agents report their ranks one after the other.
_FEWEST_ALONE, _ALONE_SETTLES_S = 2, 5.0


def findings(evidence: Evidence, now: float) -> list[Finding]:
    """All lasting findings that are known at `now`."""
    return [
        *slow.held_up(evidence),
        *_corrupt(evidence),
        *_clocks(evidence),
        *trained_alone(evidence, now),
        *_halted(evidence),
    ]


def trained_alone(evidence: Evidence, now: float) -> list[Finding]:
    """Find ranks that train alone, once several do. The run continues: they may do it on purpose, or join later."""
    living = evidence.living
    loners = {rank: of for rank, of in sorted(evidence.ranks.alone.items()) if rank in living}
    all_told = len(loners) == len(living)
    if len(loners) < _FEWEST_ALONE or (not all_told and now - max(of.t for of in loners.values()) < _ALONE_SETTLES_S):
        return []
    of = next(iter(loners.values()))
    hint = f". {of.hint}" if of.hint else ""
    who, waits = ranks_in_words(loners), all(each.waits for each in loners.values())
    if waits and not all_told:
        return []  # a rank that has joined no group yet may still join them
    does = "wait for others that never come" if waits else "train alone so far; a run that does so ends as failed"
    text = f"{who} {does}: {of.why}{hint}"
    return [Finding(Cause.ALONE, text, t=min(of.t for of in loners.values()), lasting=True)]


def _halted(evidence: Evidence) -> list[Finding]:
    """Nodes where a process that only watches the ranks is stopped: their ranks may train, but nothing reports it."""
    return [
        Finding(
            Cause.STOPPED,
            f"{node}: {words}; its ranks may still be training, but Muster does not hear from them",
            node,
            t=t,
            lasting=True,
        )
        for node, (words, t) in evidence.nodes.halted.items()
    ]


def _corrupt(evidence: Evidence) -> list[Finding]:
    """The replica whose weights differ, if all were alike before: different processors may round differently."""
    if not evidence.ranks.alike:
        return []
    for step, of in sorted(evidence.ranks.digests.items()):
        if len(of) < len(evidence.ranks.began) or len(set(of.values())) == 1:
            continue
        counts = Counter(of.values())
        odd = sorted(rank for rank, digest in of.items() if counts[digest] < max(counts.values()))
        if len(odd) != 1:
            text = (
                f"the replicas have different weights at step {step}; Muster could not tell whose are right: {dict(of)}"
            )
            return [Finding(Cause.CORRUPT_WEIGHTS, text, lasting=True)]
        node = evidence.ranks.began[odd[0]]
        text = (
            f"{node} (rank {odd[0]}) has different weights from the other replicas at step {step}: something "
            "other than training changed them: a memory fault, or code that runs only on this rank"
        )
        return [Finding(Cause.CORRUPT_WEIGHTS, text, node, odd[0], lasting=True)]
    return []


def _clocks(evidence: Evidence) -> list[Finding]:
    """The nodes whose clock jumped. If the clocks of all nodes jumped, it was this machine's clock."""
    lags = {node: lag for node, lag in evidence.nodes.lags.items() if lag.first is not None}
    jumps = {node: (lag.first or 0.0) - lag.now for node, lag in lags.items()}
    own = min(jumps.values(), key=abs) if len(jumps) > 1 else 0.0
    return [
        Finding(Cause.CLOCK, f"the clock of {node} jumped by {jump:+.0f} s", node, lasting=True)
        for node, jump in jumps.items()
        if abs(jump - own) > _CLOCK_JUMP_S
    ]
