"""Look at hosts, change nothing: their facts in one round trip, the ways between them in a second."""

from __future__ import annotations

import time
from collections.abc import Iterable

from deploy import host_commands, host_facts
from deploy.errors import DeployError
from deploy.host_facts import Container, HostFacts, Route
from deploy.results import Results
from deploy.session import Session, on_all


def facts(sessions: Iterable[Session]) -> Results[HostFacts]:
    """What each host is. A host without an engine that answers is a fault."""
    return on_all(sessions, lambda session: host_facts.parse(session.run(host_commands.look()).out, time.time()))


def routes(sessions: Iterable[Session], peers: dict[str, str]) -> Results[Route]:
    """Each host's way to its peer's address, `peers` by host's name. A host without one is a fault."""

    def ask(session: Session) -> Route:
        peer = peers[session.host.name]
        route = host_facts.parse_route(session.run(host_commands.routes([peer])).out.strip())
        if route is None:
            raise DeployError(f"no route to {peer}", f"look there at: ip route get {peer}")
        return route

    return on_all(sessions, ask)


def containers(sessions: Iterable[Session], run: str = "") -> Results[tuple[Container, ...]]:
    """The containers of one run on each host, or of all runs."""

    def ask(session: Session) -> tuple[Container, ...]:
        done = session.run(host_commands.containers(run), check=False)
        if done.code:
            raise host_facts.engine_fault((done.err.strip() or done.out.strip()).rpartition("\n")[2])
        rows = [line.removeprefix("container ") for line in done.out.splitlines() if line.startswith("container ")]
        return tuple(found for row in rows if (found := host_facts.parse_container(row)).node)

    return on_all(sessions, ask)
