"""Hosts that preflight could not examine: no SSH, no shell, no Python, or the probe died. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from .. import refusals
from ..answers import Answers
from ..findings import FAULT, UNKNOWN, Finding


def check(answers: Answers) -> Iterator[Finding]:
    """One fault for each host that did not answer."""
    for host, (slug, words) in answers.faults.items():
        text, _, hint = words.partition("\n")
        if slug == "probe-died" and (last := refusals.last_words(words)):
            slug, text, hint = refusals.start(last), f"the probe could not run: {last}", ""
        # A time limit of ours shows no fault.
        late = "sent nothing for" in text
        yield Finding(
            slug,
            "hosts",
            (host,),
            text if text.startswith(host) else f"{host}: {text}",
            symptom="the run does not start there",
            fix=hint or refusals.fix(slug, host),
            level=UNKNOWN if late else FAULT,
        )
