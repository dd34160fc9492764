"""What a deploy does to its hosts until its nodes run: a HostsBackend that also locks, looks, pushes and starts.

run/launch.py has the order of these verbs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..config.inventory import Cluster
from ..host import lock
from ..host.facts import HostFacts
from ..image.credentials import Choice
from ..report.console import Console
from ..report.interrupts import Interrupts
from ..run import record
from ..ssh.session import Session
from . import container, nodes, observe, plan, preflight
from . import push as image_push
from .backend import HostsBackend, RunHandle
from .container import NodeContainer, Work
from .preflight import ReachedHosts

_NOTHING_LEFT = "what had started was taken back; nothing of the run is left on any host"


@dataclass(frozen=True)
class DeployRequest:
    """What one deploy is to do: what was asked for, and what the hosts are. `facts` by host."""

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    base: str
    folder: Path | None
    tag: str
    work: Work
    choice: Choice
    force: bool

    def containers(self, run_id: str, try_links: bool) -> tuple[NodeContainer, ...]:
        """What each host runs. Raises DeployError where hosts have no way to each other; try_links: and try it."""
        return _containers(self, replace(self.work, run_id=run_id), try_links)


class NewRun(HostsBackend):
    """The nodes of a run that this command starts."""

    def __init__(self, request: DeployRequest, run: RunHandle, console: Console, interrupts: Interrupts) -> None:
        super().__init__(request.sessions, run, console.warn)
        self._request, self._console, self._interrupts = request, console, interrupts
        self._hosts = ReachedHosts(request.cluster, request.sessions, request.facts)
        self._preflight: dict[str, Any] = {}
        self._containers: Sequence[NodeContainer] = ()

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Of two deploys at the same moment the second is told who is at work, not what is in its way."""
        self._interrupts.at("locking the hosts")
        with lock.take(self._request.sessions, self._id) as self._locks:
            yield

    def check(self) -> None:
        """Preflight, from inside the image where all hosts have it; then plan the nodes."""
        self._interrupts.at("trying the links between the hosts")
        self._preflight = self._gate(brought=False)
        self._interrupts.at("planning")
        self._containers = self._request.containers(self._id, try_links=bool(self._preflight["unseen"]))

    def prepare(self) -> None:
        """Push the image. Where it was nowhere before, preflight can look from inside it only now."""
        request, run_dir = self._request, self.run.run_dir
        record.write_json(run_dir / "preflight.json", self._preflight)
        self._interrupts.at("pushing the image", image_push.LEFT_BY_A_PUSH)
        proven = self._preflight["ran"] == request.tag
        image_push.bring(
            request.sessions, request.base, request.folder, request.tag, self._console, request.choice, proven
        )
        if not (self._preflight["ran"] or request.force):
            self._interrupts.at("trying the image", image_push.LEFT_BY_A_PUSH)
            record.write_json(run_dir / "preflight.json", self._gate(brought=True))
        self._locks.refuse_lost()
        if self.run.resumed:
            nodes.remove(request.sessions, self._id).all()

    def start(self) -> None:
        """Start the first host's node, then all others. Raises HostsFailed with every host that failed."""
        self._interrupts.at("starting the nodes", _NOTHING_LEFT)
        nodes.start(self._request.sessions, self._containers)

    def undo(self) -> None:
        """Remove what this start made on any host, and nothing else; warn of hosts where that failed."""
        self._console.note("taking back what was started")
        faults = nodes.undo(self._request.sessions, self._containers).faults
        for host, fault in faults.items():
            self._console.warn(f"{host}: {fault.message}")
        if faults:
            hosts = ",".join(faults)
            self._interrupts.left = f"something may be left on {hosts}: fab down --hosts {hosts} --run {self._id}"
            self._console.warn(self._interrupts.left)

    def _gate(self, brought: bool) -> dict[str, Any]:
        request = self._request
        return preflight.gate(self._hosts, (request.tag, request.base), request.force, self._console, brought)


def _containers(request: DeployRequest, work: Work, try_links: bool) -> tuple[NodeContainer, ...]:
    hosts, sessions = request.cluster.hosts, request.sessions
    known = [request.facts[host.name] for host in hosts]
    address = plan.choose_address(known, hosts[0].interface)
    # The first host looks the other way: to a peer, or to itself when it is alone.
    back = known[1].reached_at if len(known) > 1 and known[1].addresses else address
    own = [found.address for found in known[1].addresses] if len(known) > 1 else []
    peers = {host.name: address for host in hosts}
    peers[hosts[0].name] = back if back in own or not own else own[0]
    routes = observe.routes(sessions, peers).all()
    ways = [routes[host.name] for host in hosts]
    if ways[0].interface == "lo":
        ways[0] = replace(ways[0], interface=next(a.interface for a in known[0].addresses if a.address == address))
    port = plan.choose_port(known[0])
    # Preflight knows better, but sees nothing where neither the image nor a Python is there yet.
    if len(hosts) > 1 and try_links:
        toward = {host.name: [address] for host in hosts} | {hosts[0].name: [way.source for way in ways[1:]]}
        observe.refuse_unreached(sessions, toward, port)
    meeting = container.meeting_of(hosts, address, port, ways)
    return container.node_containers(hosts, known, request.cluster.job, work, meeting)
