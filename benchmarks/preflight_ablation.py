"""What each part of preflight earns: the same answers judged as if that part had never been asked.

For probing in the container the hosts are probed once more, outside of it.
"""

from __future__ import annotations

from dataclasses import replace

from deploy.preflight import judge
from lab import trial


def without_tokens(answers):
    """An open port is an open port, whoever answers; a refusal tells nothing, since nobody may be listening."""
    seen = [
        replace(link, host="", outcome={"stranger": "ok"}.get(link.outcome, link.outcome)) for link in answers.links
    ]
    return replace(answers, links=tuple(link for link in seen if link.outcome not in ("refused", "silent")))


def without_data_ports(answers):
    """The rendezvous port is all that is tried."""
    return replace(answers, links=tuple(link for link in answers.links if {"rendezvous", "hint"} & set(link.kinds)))


def without_large_payload(answers):
    """A connection that opens is taken for one that carries."""
    well = [replace(link, outcome="ok") if link.outcome.startswith("stall") else link for link in answers.links]
    return replace(answers, links=tuple(well))


def without_clocks(answers):
    """No clock is looked at."""
    return replace(answers, clocks={})


def without_prediction(answers):
    """The addresses that hosts share are tried, and not those that torch will pick by names and interfaces."""
    facts = {host: {**fact, "environment": {}} for host, fact in answers.facts.items()}
    return replace(answers, request=replace(answers.request, style="muster", endpoint=""), facts=facts)


PARTS = {
    "identity tokens": without_tokens,
    "data ports": without_data_ports,
    "prediction": without_prediction,
    "large payload": without_large_payload,
    "clock check": without_clocks,
}
INSIDE = "probing in the container (instead of on its host)"


def lost(answers, expected, outside=None):
    """The parts without which the right cause would not have been said. `outside`: answers of probes that ran on the

    hosts themselves, without the environment, limits and mounts of the run; none where that would be the same.
    """
    parts_lost = [part for part, without in PARTS.items() if not _right(without(answers), expected)]
    return parts_lost + ([INSIDE] if outside is not None and not _right(outside, expected) else [])


def differs_outside(lab):
    """Whether any host gives a run something of its own: an environment, limits, mounts."""
    return any(
        host.prefix() != host.prefix(inside=False) or host.variables() != host.variables(inside=False)
        for host in lab.hosts
    )


def _right(answers, expected):
    try:
        return trial.says_the_cause(judge(answers), expected)
    except (KeyError, IndexError, StopIteration):
        return False
