"""Burn the GPUs of all hosts at once: the containers that the run would start, with trainer/burn.py in them."""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from ..core.errors import DeployError
from ..core.results import Results
from ..core.text import in_seconds
from ..door.session import Session, on_all
from ..host import commands
from ..host.facts import HostFacts
from ..preflight import probe_answers
from ..preflight.burned import Burned
from ..preflight.probe import text
from . import observe, probes
from .container import NodeContainer
from .probes import SessionProbe
from .rehearsal import argv_of, folder_of

# A slow engine takes 25 s to start a container, and eight GPUs as long to be looked at one after the other.
START_S, AROUND_S, TICK_S = 180.0, 20, 1.0
Say = Callable[[str], None]


def program() -> bytes:
    """The program that the hosts run, as text."""
    return text.text(Path(__file__).resolve().parents[2] / "trainer" / "burn.py")


def burn(sessions: Sequence[Session], nodes: Sequence[NodeContainer], seconds: int, say: Say) -> dict[str, Burned]:
    """Burn the GPUs that these nodes have, in their containers. Leaves nothing on the hosts."""
    by_name, by_host, sent = {session.host.name: session for session in sessions}, {n.host: n for n in nodes}, program()

    def start(session: Session) -> SessionProbe:
        node = by_host[session.host.name]
        folder = folder_of(node, secrets.token_hex(6))
        command = commands.rehearse(folder, node.owner, node.keep, argv_of(node, folder))
        return SessionProbe(session, command, sent, commands.line(commands.variable_lines(node.environment)))

    return _asked(on_all([by_name[node.host] for node in nodes], start), seconds, say)


def bare(sessions: Sequence[Session], python: str, seconds: int, say: Say) -> dict[str, Burned]:
    """Burn all GPUs of the hosts, with their own Python."""
    sent = program()
    return _asked(on_all(sessions, lambda session: SessionProbe(session, [python], sent)), seconds, say)


def new_lines(sessions: Sequence[Session], before: Mapping[str, HostFacts]) -> dict[str, list[str]]:
    """What the GPUs' drivers have written into the kernels' logs since `before`, by host."""
    now = observe.facts(sessions).values
    return {
        host: [line for line in facts.kernel if line not in before[host].kernel]
        for host, facts in now.items()
        if host in before
    }


def _asked(started: Results[SessionProbe], seconds: int, say: Say) -> dict[str, Burned]:
    """Ask all at once, and wait for each; a host that fails is an outcome, too."""
    outcomes = {host: Burned({}, fault) for host, fault in started.faults.items()}

    def ask(probe: SessionProbe) -> None:
        try:
            probe.send({"seconds": seconds})
            outcomes[probe.name] = Burned(probe_answers.read("burn", probe.read(seconds + START_S)))
        except DeployError as failed:
            outcomes[probe.name] = Burned({}, failed)

    asking = [threading.Thread(target=ask, args=(probe,), daemon=True) for probe in started.values.values()]
    began = time.monotonic()
    try:
        for thread in asking:
            thread.start()
        while any(thread.is_alive() for thread in asking):
            say(
                f"burning the GPUs, {in_seconds(time.monotonic() - began, 0)} of about {in_seconds(seconds + AROUND_S)}"
            )
            next(thread for thread in asking if thread.is_alive() or thread is asking[-1]).join(TICK_S)
    finally:
        probes.close(started)
    return {host: outcomes[host] for host in [*started.faults, *started.values]}
