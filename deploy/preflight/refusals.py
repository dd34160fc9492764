"""Why preflight could not examine a host: turn an error text of SSH, the engine or `docker run` into a finding. Pure.

A finding's text shows the error as it was. Its cause is certain only if the tool uses these words for that cause alone.
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
# A server that accepts none of the keys does not say why, so the cause is only inferred.
_NO_KEY = "accepts none of your keys"
# This comes from the dynamic loader's own message, which has only one meaning.
_NO_LIBRARY = " lacks the library "
# How messages of Muster's own scripts begin if the script has tested the fact itself.
_OF_OUR_SCRIPTS = ("this docker ", "this engine ", "no answer within", "docker: not found")


def of_fault(host: str, slug: str, text: str, hint: str) -> Finding:
    """Return the finding for a host that did not answer. `text`: what was seen, without any conclusion from it."""
    text = text if text.startswith(f"{host}:") else f"{host}: {text}"
    finding = find(slug, (host,), text, hint, symptom=NOT_STARTED, group="hosts")
    # If Muster's own time limit has passed, that proves no fault of the host.
    late = "sent nothing for" in text
    inferred = (row_of(slug).without_reason and _NO_LIBRARY not in text) or _NO_KEY in text
    if slug == "process-limits":  # the probe crashed, and a limit was found that would explain it
        return replace(unsure(finding), or_else=("another crash of Python or of a library",))
    return unsure(finding) if late or inferred else finding


def of_words(host: str, group: str, what: str, words: str, instead: str = "probe-died") -> Finding:
    """Return the finding for a tool's last words. `what`: what the tool did (`docker run ended with code 125`).

    The finding's text has these words first, then the cause that they suggest. The cause is certain only if the words
    have no other cause. `instead`: the cause to use if the words suggest none.
    """
    cause = docker_faults.read_cause(words)
    name = cause.name if cause else instead
    seen = f"{host}: {what}: {words or 'it printed nothing'}"
    next_command = docker_faults.hint(words, host) if cause else ""
    finding = find(name, (host,), seen, next_command, symptom=NOT_STARTED, group=group)
    if cause is None or name == "docker-refused":
        return unsure(finding)
    if cause.what in words or words.startswith(_OF_OUR_SCRIPTS):
        return finding if cause.proved_by(words) else unsure(finding)
    if cause.proved_by(words):
        return replace(finding, text=f"{seen}: {cause.what}")
    return unsure(replace(finding, text=cause.what), seen)


def elsewhere(host: str, cause: str, words: str, at: str) -> Finding:
    """Return the finding for a Docker client that a setting sends to another engine (`at`), which does not answer."""
    text = f"its client looks for the engine elsewhere: {at}"
    finding = find(cause, (host,), text, docker_faults.elsewhere(at, host), symptom=NOT_STARTED, group="hosts")
    likely = unsure(finding, f"{host}: `docker version`: {words}")
    return replace(likely, or_else=("an engine that should run at that address, and does not",))


def parse_end(message: str) -> tuple[int, str] | None:
    """Return the exit code and the last words from a message about a command that ended; None for any other text."""
    match = re.search(r"(?:`|the probe) ended with code (-?\d+): (.*)", message, re.DOTALL)
    return (int(match[1]), match[2].strip()) if match else None


def describe_end(what: str, code: int) -> str:
    """Describe how a program in a container ended; 125 is Docker's own code."""
    return (
        f"{what}: `docker run` started no container (code 125)" if code == NO_CONTAINER else f"{what} {ended_how(code)}"
    )


def check(answers: Answers) -> Iterator[Finding]:
    """Yield one finding for each host that did not answer."""
    for host, (slug, words) in answers.faults.items():
        text, _, hint = words.partition("\n")
        if end := parse_end(words) if slug == "probe-died" else None:
            yield of_words(host, "hosts", describe_end("the probe", end[0]), end[1])
        else:
            yield of_fault(host, slug, text, hint)
