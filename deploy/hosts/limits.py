"""The limits that a container gives a process, asked where the probe in one has died without a reason.

Python dies of a stack that is smaller than it needs before it can say so; a shell does with less.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace

from ..core.errors import SIGNALLED, DeployError
from ..core.text import binary
from ..door.session import Session
from ..host import commands
from ..host.facts import HostFacts
from ..job.options import Job
from ..preflight import Answers, refusals
from ..preflight.checks import resources
from . import probes

_ASK_S, _SEGV = 20.0, 11
_STACK = re.compile(r"^Max stack size +([0-9]{1,20}) ", re.MULTILINE)


def read(
    answers: Answers, sessions: Sequence[Session], facts: Mapping[str, HostFacts], job: Job, image: str
) -> Answers:
    """The answers; where a probe crashed in a container whose stack is small, that is the likely cause."""
    faults = dict(answers.faults)
    for session in sessions:
        host = session.host.name
        cause, words = faults.get(host, ("", ""))
        code, last = (refusals.ended(words) if cause == "probe-died" else None) or (0, "")
        if code != SIGNALLED + _SEGV or host not in facts:
            continue
        stack = _stack(session, facts[host], job, image)
        if 0 <= stack < resources.STACK_LEAST:
            text = (
                f"{host}: {refusals.how('the probe', code)}: {last}; a process there may have {binary(stack)} of stack"
            )
            faults[host] = ("process-limits", f"{text} (ulimit -s), and Python needs more\n{resources.stack_fix(host)}")
    return replace(answers, faults=faults)


def _stack(session: Session, facts: HostFacts, job: Job, image: str) -> int:
    """The bytes of stack that a process in a container may have; -1: no limit, or nobody knows."""
    end = ("--entrypoint", "sh", image, "-c", "cat /proc/self/limits")
    with suppress(DeployError):  # the host may be lost by now
        argv = probes.in_container(facts, session, job, image, end=end)
        limits = session.run(argv, input=commands.line(b""), timeout_s=_ASK_S, check=False).out
        if match := _STACK.search(limits):
            return int(match[1])
    return -1
