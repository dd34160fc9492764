"""Finds out why a host's probe ended or was silent if its own output does not tell: the host is asked once more.

- An engine runs a container but gives no connection to it: something in front of the engine passes on no upgrade.
  `docker run --interactive` and `docker exec` ask the engine to turn their HTTP connection into a plain one, which many
  web servers between a client and an engine refuse. A detached run does not need that, so it starts there and trains.
- Python dies without a message if its stack limit is too small; a shell needs less stack.
- An engine has made a container and does not start it; or a login shell did not begin.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

from ...causes import docker_faults
from ...causes.finding import WARNING, Finding, find
from ...core.errors import NOT_FOUND, SIGNALLED, DeployError
from ...core.scripts import Scripts
from ...core.text import binary, in_seconds
from ...door.session import Session, on_all
from ...engine.compose import LABEL
from ...host import commands
from ...host.facts import HostFacts
from ...host.reached import NoAnswer, ReachedHosts
from ...job.options import FLAG
from ...preflight import Answers, refusals
from ...preflight.checks import resources
from ...preflight.probe.conversation import FACTS_S
from . import probes

_REMOVE_S, _SCRIPT = 20.0, Scripts(__file__)


def hosts_without_connection(answers: Answers) -> dict[str, str]:
    """The hosts whose probe got no connection to its container, each with the Docker client's message."""
    ends = {host: fault.ended[1] for host, fault in answers.faults.items() if fault.ended}
    return {host: words for host, words in ends.items() if docker_faults.gives_no_connection(words)}


def no_connection(host: str, words: str, facts: HostFacts) -> Finding:
    """A warning: a run starts on this host, but nothing that connects to its containers works."""
    way = f" ({facts.engine_at})" if facts.engine_at else ""
    text = f"its engine allows no connection to a container: {words}; something between client and engine{way} "
    text += "does not forward the upgrade of a connection. A run starts there, without a rehearsal; "
    text += f"`muster exec`, `muster shell`, `muster why`, secrets, packages and {FLAG.overlay} do not work"
    fix = docker_faults.hint(words, host)
    return find("docker-refused", host, text, fix, WARNING)


def remove_unstarted(sessions: Sequence[Session]) -> None:
    """Remove the containers that `docker run` created before its connection was refused, and left behind."""

    def clean(session: Session) -> None:
        with suppress(DeployError):  # the host may be lost by now
            session.run(_SCRIPT("remove-unstarted", LABEL), timeout_s=_REMOVE_S, check=False)

    on_all(sessions, clean)


_ASK_S, _SEGV = 20.0, 11
_STACK = re.compile(r"^Max stack size +([0-9]{1,20}) ", re.MULTILINE)


def with_small_stacks(answers: Answers, hosts: ReachedHosts, image: str) -> Answers:
    """Blame a small stack limit if a probe crashed in a container that has one: that is the likely cause."""
    faults = dict(answers.faults)
    for session in hosts.sessions:
        host = session.name
        code, last = (host in faults and faults[host].ended) or (0, "")
        if code != SIGNALLED + _SEGV or host not in hosts.facts:
            continue
        stack = _stack(session, hosts, image)
        if 0 <= stack < resources.STACK_LEAST:
            text = (
                f"{host}: {refusals.describe_end('the probe', code)}: {last}; the stack limit of a process there is "
                f"{binary(stack)}"
            )
            text = f"{text} (ulimit -s), but Python needs more"
            faults[host] = NoAnswer("process-limits", text, resources.stack_fix(host))
    return replace(answers, faults=faults)


def _stack(session: Session, hosts: ReachedHosts, image: str) -> int:
    """The stack in bytes that a process in a container may have; -1: no limit, or unknown."""
    end = ("--entrypoint", "sh", image, "-c", "cat /proc/self/limits")
    with suppress(DeployError):  # the host may be lost by now
        argv = probes.in_container(hosts, session, image, end)
        limits = session.run(argv, input=commands.base64_line(b""), timeout_s=_ASK_S, check=False).out
        if match := _STACK.search(limits):
            return int(match[1])
    return -1


def with_causes(answers: Answers, python: str) -> Answers:
    """Set a more exact cause for a host that lacks the Python."""

    def cause_of(fault: NoAnswer) -> NoAnswer:
        code, last = fault.ended or (0, "")
        if code == NOT_FOUND and f"{python}: " in last:  # the rest is the shell's message, in its own language
            return NoAnswer(
                "no-python", f"there is no {python}", f"choose the Python that has your torch: {FLAG.python} PATH"
            )
        return fault

    return replace(answers, faults={host: cause_of(fault) for host, fault in answers.faults.items()})


def with_unstarted(answers: Answers, sessions: Sequence[Session]) -> Answers:
    """Set the cause for a silent probe whose container the engine has made but not started."""
    faults = dict(answers.faults)
    for session in sessions:
        name = session.name
        if name in faults and faults[name].kind == "slow" and probes.has_unstarted(session):
            words = f"its engine created a container but did not start it within {in_seconds(FACTS_S)}"
            faults[name] = NoAnswer(
                "docker-silent", f"{name}: {words}; `docker run --rm hello-world` there shows the same"
            )
    return replace(answers, faults=faults)
