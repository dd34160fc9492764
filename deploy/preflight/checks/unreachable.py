"""Hosts that preflight could not examine: no SSH, no shell, no Python, or the probe died. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from ...causes.finding import Finding
from .. import refusals
from ..answers import Answers


def check(answers: Answers) -> Iterator[Finding]:
    """One finding for each host that did not answer."""
    for host, (slug, words) in answers.faults.items():
        text, _, hint = words.partition("\n")
        ended = refusals.ended(words) if slug == "probe-died" else None
        if ended:
            yield refusals.of_words(host, "hosts", refusals.how("the probe", ended[0]), ended[1])
        else:
            yield refusals.of_fault(host, slug, text, hint)
