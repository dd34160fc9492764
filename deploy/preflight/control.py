"""Hosts that could not be examined: no SSH, no shell, no Python, a probe that died. Pure."""

from __future__ import annotations

from collections.abc import Iterator

from deploy.preflight.answers import Answers
from deploy.preflight.verdict import Finding

FIXES = {
    "no-python": "install python3 there (3.8 or newer), or name an image that has it",
    "probe-died": "fab preflight again; if it stays, look there at: dmesg | tail",
}


def check(answers: Answers) -> Iterator[Finding]:
    """One fault for each host that did not answer."""
    for host, (slug, words) in answers.faults.items():
        said, _, hint = words.partition("\n")
        yield Finding(
            slug,
            "hosts",
            (host,),
            said if said.startswith(host) else f"{host}: {said}",
            symptom="the run would not start there",
            fix=hint or FIXES.get(slug, ""),
        )
