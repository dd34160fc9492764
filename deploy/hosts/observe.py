"""Look at hosts, change nothing: their facts in one round trip, the ways between them in a second."""

from __future__ import annotations

import posixpath
import time
from collections.abc import Iterable, Mapping, Sequence

from ..config.inventory import Job
from ..core.errors import DeployError
from ..core.results import Results
from ..host import commands
from ..host import facts as host_facts
from ..host.facts import Container, HostFacts, Route
from ..ssh.session import Session, on_all
from . import container

_MOST_SAID = 500


def facts(sessions: Iterable[Session]) -> Results[HostFacts]:
    """What each host is. A host without an engine that answers is a fault."""
    return on_all(sessions, lambda session: host_facts.parse(session.run(commands.look()).out, time.time()))


def routes(sessions: Iterable[Session], peers: dict[str, str]) -> Results[Route]:
    """Each host's way to its peer's address, `peers` by host's name. A host without one is a fault."""

    def ask(session: Session) -> Route:
        peer = peers[session.host.name]
        route = host_facts.parse_route(session.run(commands.routes([peer])).out.strip())
        if route is None:
            raise DeployError(f"no route to {peer}", f"run there: ip route get {peer}")
        return route

    return on_all(sessions, ask)


def refuse_unreached(sessions: Iterable[Session], peers: Mapping[str, Sequence[str]], port: int) -> None:
    """Try the port at each host's peers, `peers` by host's name: addresses. Raises HostsFailed with every host that
    has peers it does not reach."""

    def ask(session: Session) -> None:
        asked = peers[session.host.name]
        told = [line.partition(" ") for line in session.run(commands.unreached(asked, port)).out.split("\n")]
        if lost := [(peer, why[:_MOST_SAID]) for peer, _, why in told if peer in asked]:
            first, why = lost[0]
            more = f", nor {len(lost) - 1} others" if len(lost) > 1 else ""
            raise DeployError(
                f"cannot reach {first}:{port} from here: {why}{more}",
                f"allow TCP {port} and the ports above 1023 between the hosts (firewall, security group)",
            )

    on_all([session for session in sessions if peers.get(session.host.name)], ask).all()


def refuse_missing(sessions: Iterable[Session], job: Job) -> None:
    """Raise HostsFailed with every host that lacks a folder to be mounted. Asks nothing where none is."""

    def ask(session: Session) -> None:
        sources = sorted({mount.source for mount in container.mounts(session.host, job)})
        told = session.run(commands.missing(sources)).out.split("\n")
        if lost := [path for path in sources if path in told]:
            raise DeployError(f"there is no {', '.join(lost)} to mount", "create it there, or mount another folder")

    on_all([session for session in sessions if container.mounts(session.host, job)], ask).all()


def containers(sessions: Iterable[Session], run: str = "") -> Results[tuple[Container, ...]]:
    """The containers of one run on each host, or of all runs: ours and other users'."""

    def ask(session: Session) -> tuple[Container, ...]:
        done = session.run(commands.containers(run), check=False)
        if done.code:
            raise host_facts.engine_fault((done.err.strip() or done.out.strip()).rpartition("\n")[2][:_MOST_SAID])
        rows = [line.removeprefix("container ") for line in done.out.split("\n") if line.startswith("container ")]
        found = host_facts.containers(rows, posixpath.dirname(session.home))
        return tuple(one for one in found if one.node)

    return on_all(sessions, ask)
