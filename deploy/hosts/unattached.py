"""Engines that take a container and give nobody a connection to it: what stands before them passes on no upgrade.

`docker run --interactive` and `docker exec` ask the engine to make their HTTP connection a plain one. Many web servers
between a client and an engine refuse that. A detached run needs none of it, so it starts there and trains.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress

from ..causes import docker_faults
from ..causes.finding import WARNING, find
from ..core.errors import DeployError
from ..core.program import FAB
from ..core.scripts import Scripts
from ..core.text import subject
from ..door.session import Session, on_all
from ..host.facts import HostFacts
from ..preflight import Answers, Finding, refusals
from .probes import LABEL

_REMOVE_S, _SCRIPT = 20.0, Scripts(__file__)


def hosts_of(answers: Answers) -> dict[str, str]:
    """The hosts whose probe got no connection to its container, each with the client's words."""
    ends = {host: refusals.ended(text) for host, (_, text) in answers.faults.items()}
    return {host: end[1] for host, end in ends.items() if end and docker_faults.gives_no_connection(end[1])}


def finding(host: str, words: str, facts: HostFacts) -> Finding:
    """A warning: a run starts there, and what enters its containers does not work."""
    way = f" ({facts.engine_at})" if facts.engine_at else ""
    text = f"{host}: its engine gives no connection to a container: {words}; something between client and engine{way} "
    text += "passes on no upgrade of a connection. A run starts there, without a rehearsal; "
    text += f"`{FAB} exec`, `{FAB} shell`, `{FAB} why`, secrets, packages and --overlay do not work"
    fix = docker_faults.hint(words, host)
    return find("docker-refused", (host,), text, fix, WARNING)


def why(hosts: Mapping[str, str]) -> str:
    """Why no probe runs in a container, in words."""
    return f"{subject(list(hosts), 'gives', 'give')} no connection to a container"


def remove(sessions: Sequence[Session]) -> None:
    """Remove what `docker run` has made there before it asked for the connection, and left."""

    def clean(session: Session) -> None:
        with suppress(DeployError):  # the host may be lost by now
            session.run(_SCRIPT("remove-unstarted", LABEL), timeout_s=_REMOVE_S, check=False)

    on_all(sessions, clean)
