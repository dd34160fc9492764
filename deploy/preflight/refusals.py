"""Why preflight could not examine a host: from the error text of SSH, the engine or `docker run` to a finding. Pure.

A text says what was seen. What it looks like is sure only if the tool has these words for this cause alone.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from ..causes import docker_faults
from ..causes.finding import Finding, find, unsure
from ..causes.table import row_of
from ..core.errors import NO_CONTAINER
from ..core.facts import ended_how
from .answers import Answers

NOT_STARTED = "the run does not start there"
# What a server says of keys: it gives no reason either.
_NO_KEY = "accepts none of your keys"
# A loader's own words have one meaning.
_NO_LIBRARY = " lacks the library "
# How our own scripts begin what they have looked at themselves.
_OURS = ("this docker ", "this engine ", "no answer within", "docker: not found")


def of_fault(host: str, slug: str, text: str, hint: str) -> Finding:
    """The finding for a host that gave no answer. `text`: what was seen, which says no more than that."""
    text = text if text.startswith(f"{host}:") else f"{host}: {text}"
    finding = find(slug, (host,), text, hint, symptom=NOT_STARTED, group="hosts")
    # A time limit of ours shows no fault.
    late = "sent nothing for" in text
    inferred = (row_of(slug).without_reason and _NO_LIBRARY not in text) or _NO_KEY in text
    if slug == "process-limits":  # a crash of the probe, beside a limit that explains it
        return replace(unsure(finding), or_else=("another crash of Python or of a library",))
    return unsure(finding) if late or inferred else finding


def of_words(host: str, group: str, what: str, words: str, instead: str = "probe-died") -> Finding:
    """What a tool's last words show. `what`: what the tool did, as in `rack-2: docker run ended with code 125`.

    Its words come first, then the cause that they look like; only words that have no other cause make it sure.
    `instead`: the cause where they show none.
    """
    cause = docker_faults.read(words)
    name = cause.name if cause else instead
    seen = f"{host}: {what}: {words or 'it printed nothing'}"
    next_command = docker_faults.hint(words, host) if cause else ""
    finding = find(name, (host,), seen, next_command, symptom=NOT_STARTED, group=group)
    if cause is None or name == "docker-refused":
        return unsure(finding)
    if cause.what in words or words.startswith(_OURS):
        return finding if cause.proved_by(words) else unsure(finding)
    if cause.proved_by(words):
        return replace(finding, text=f"{seen}: {cause.what}")
    return unsure(replace(finding, text=cause.what), seen)


def elsewhere(host: str, cause: str, words: str, at: str) -> Finding:
    """An engine that does not answer, where something sends the client to another one than the host's (`at`)."""
    text = f"its client looks for the engine elsewhere: {at}"
    finding = find(cause, (host,), text, docker_faults.elsewhere(at, host), symptom=NOT_STARTED, group="hosts")
    likely = unsure(finding, f"{host}: `docker version`: {words}")
    return replace(likely, or_else=("an engine that should run at that address, and does not",))


def ended(message: str) -> tuple[int, str] | None:
    """The exit code and the last words of a command that ended, without the command; None for other text."""
    match = re.search(r"(?:`|the probe) ended with code (-?\d+): (.*)", message, re.DOTALL)
    return (int(match[1]), match[2].strip()) if match else None


def how(what: str, code: int) -> str:
    """How a program in a container ended, in words: 125 is Docker's own code."""
    return (
        f"{what}: `docker run` started no container (code 125)" if code == NO_CONTAINER else f"{what} {ended_how(code)}"
    )


def check(answers: Answers) -> Iterator[Finding]:
    """One finding for each host that did not answer."""
    for host, (slug, words) in answers.faults.items():
        text, _, hint = words.partition("\n")
        if end := ended(words) if slug == "probe-died" else None:
            yield of_words(host, "hosts", how("the probe", end[0]), end[1])
        else:
            yield of_fault(host, slug, text, hint)
