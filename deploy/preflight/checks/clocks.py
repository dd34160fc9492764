"""Clocks: 2 s apart is a warning; torchrun's keep-alive time (request.py) or more stops its rendezvous. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterator

from ...causes.finding import FAULT, WARNING, Finding, find
from ...core.text import in_seconds, listed
from ..answers import Answers
from ..request import KEEP_ALIVE_S

WARN_S = 2.0


def check(answers: Answers) -> Iterator[Finding]:
    """Compare each clock with that of the rendezvous host; blame the hosts that differ from the median.

    Only a difference beyond the possible error counts: an answer that took seconds is not precise.
    """
    if len(answers.clocks) < 2 or answers.rendezvous_host not in answers.clocks:
        return
    zero, unsure = answers.clocks[answers.rendezvous_host]
    ahead = {host: clock - zero for host, (clock, _) in answers.clocks.items()}
    least = {host: abs(ahead[host]) - error - unsure for host, (_, error) in answers.clocks.items()}
    far = [host for host, seconds in least.items() if seconds >= WARN_S]
    if not far:
        return
    # A host that is this far ahead considers its peers dead. Training still works, but in more than half of the runs
    # the agents hang at the end.
    late = [host for host in far if least[host] >= KEEP_ALIVE_S and answers.request.by_c10d]
    # This machine's own clock, at 0, counts too: if two hosts differ, it shows which one is wrong.
    middle = statistics.median([*(clock for clock, _ in answers.clocks.values()), 0.0])
    odd = tuple(host for host, (clock, error) in answers.clocks.items() if abs(clock - middle) - error >= WARN_S)
    shown = [
        f"{host} is {in_seconds(abs(s), 1)} {'ahead of' if s > 0 else 'behind'} {answers.rendezvous_host}"
        for host, s in ahead.items()
        if host in far
    ]
    symptom = (
        "one node silently trains alone and ends with code 0; the others print `Failed to recv, got 0 bytes`; "
        "or all train, "
        "and the agents hang at the end"
    )
    yield find(
        "clock-skew",
        odd or tuple(late or far),
        f"clocks differ: {listed(shown)}",
        level=FAULT if late else WARNING,
        evidence=shown,
        symptom=symptom if late else "training works, but the times in the logs of different hosts do not match",
    )
