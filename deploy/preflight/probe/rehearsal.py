"""Ask all hosts to rehearse the run (node/probe/rehearsal.py), one phase at a time, and return each host's answer."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ...core.errors import DeployError
from ...host.reached import NoAnswer
from .. import probe_answers
from ..rehearsal import Outcome
from ..request import Facts
from . import text
from .text import ProbeStream

# A slow engine needs 25 s to start a container, and a cold disk a minute to read torch.
ALONE_S, WAIT_S, TOGETHER_S = 150.0, 30, 55.0
# How long to wait for the other hosts once one has failed: they can only wait for it.
GRACE_S = 3.0
LONG = 20_000_000


def program() -> bytes:
    """Return the program that the hosts run, as text. It is in trainer/, because a node can run it as well."""
    return text.text(Path(__file__).resolve().parents[3] / "trainer" / "node" / "probe" / "rehearsal.py")


def rehearse(
    shells: Sequence[ProbeStream],
    questions: Mapping[str, Facts],
    say: Callable[[str], None] = lambda phase: None,
) -> dict[str, Outcome]:
    """Run both phases on all hosts in parallel; return each host's outcome. If a host fails alone, skip the second.

    `questions`, by host: `environment` (variables that the program's own environment lacks), `backend`, `bytes`,
    `folders` (further folders in which the run may write).
    """
    asked = {shell.name: {"wait": WAIT_S, "bytes": LONG, **questions[shell.name]} for shell in shells}
    alone = _phase(shells, asked, ALONE_S, lambda done: say(f"rehearsal: alone {done} of {len(shells)}"))
    if not all(outcome.succeeded for outcome in alone.values()):
        return alone
    return _phase(
        shells,
        {shell.name: {"do": "together"} for shell in shells},
        TOGETHER_S,
        lambda done: say(f"rehearsal: together {done} of {len(shells)}"),
        GRACE_S,
    )


def _phase(
    shells: Sequence[ProbeStream],
    questions: Mapping[str, Facts],
    limit_s: float,
    say: Callable[[int], None],
    grace_s: float | None = None,
) -> dict[str, Outcome]:
    ended: queue.SimpleQueue[tuple[str, Outcome]] = queue.SimpleQueue()

    def ask(shell: ProbeStream) -> None:
        try:
            shell.send(dict(questions[shell.name]))
            answer = probe_answers.read("rehearsal", shell.read(limit_s))
            ended.put((shell.name, Outcome(answer)))
        except DeployError as failed:
            ended.put((shell.name, Outcome({}, NoAnswer.of(failed))))

    for shell in shells:
        threading.Thread(target=ask, args=(shell,), daemon=True, name=f"muster-rehearsal-{shell.name}").start()
    outcomes: dict[str, Outcome] = {}
    end = time.monotonic() + limit_s + 5
    while len(outcomes) < len(shells):
        say(len(outcomes))
        try:
            host, outcome = ended.get(timeout=max(0.01, end - time.monotonic()))
        except queue.Empty:
            break
        outcomes[host] = outcome
        if grace_s is not None and outcome.has_own_error:
            end = min(end, time.monotonic() + grace_s)
    # A host that still waits for a failed host has no answer.
    return {shell.name: outcomes.get(shell.name, Outcome({}, waits=True)) for shell in shells}
