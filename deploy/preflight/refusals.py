"""Why preflight could not examine a host: turn an error text of SSH, the engine or `docker run` into a finding. Pure.

A finding's text shows the error as it was. Its cause is certain only if the tool uses these words for that cause alone.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ..causes import docker_faults
from ..causes.finding import Finding, find, unsure
from ..causes.table import row_of
from ..core.errors import NO_CONTAINER
from ..core.facts import ended_how
from ..host.reached import NoAnswer
from .answers import Answers

NOT_STARTED = "the run does not start there"
# A kind of SSH fault -> whether it proves its cause: a server that accepts none of the keys does not say why, and a
# time limit of Muster's own proves no fault of the host, but the dynamic loader's message has only one meaning.
_SURE = {"key-rejected": False, "slow": False, "no-library": True}
# How messages of Muster's own scripts begin if the script has tested the fact itself.
_OF_OUR_SCRIPTS = ("this docker ", "this engine ", "no answer within", "docker: not found")


def of_fault(host: str, fault: NoAnswer) -> Finding:
    """Return the finding for a host that did not answer. Its text is what was seen, without any conclusion from it."""
    text = fault.text if fault.text.startswith(f"{host}:") else f"{host}: {fault.text}"
    finding = find(fault.cause, (host,), text, fault.hint, symptom=NOT_STARTED, group="hosts")
    if fault.cause == "process-limits":  # the probe crashed, and a limit was found that would explain it
        return replace(unsure(finding), or_else=("another crash of Python or of a library",))
    sure = _SURE.get(fault.kind, not row_of(fault.cause).without_reason)
    return finding if sure else unsure(finding)


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


def describe_end(what: str, code: int) -> str:
    """Describe how a program in a container ended; 125 is Docker's own code."""
    return (
        f"{what}: `docker run` started no container (code 125)" if code == NO_CONTAINER else f"{what} {ended_how(code)}"
    )


def check(answers: Answers) -> Iterator[Finding]:
    """Yield one finding for each host that did not answer."""
    for host, fault in answers.faults.items():
        if fault.ended and fault.cause == "probe-died":
            code, words = fault.ended
            yield of_words(host, "hosts", describe_end("the probe", code), words)
        else:
            yield of_fault(host, fault)
