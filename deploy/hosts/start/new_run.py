"""What a deploy does to its hosts until its nodes run: a HostsBackend that also locks, checks, pushes and starts.

run/start.py defines the order of these steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from ...core.results import HostsFailed
from ...host import lock
from ...report.console import Console
from ...report.interrupts import Interrupts
from ...run.files import record
from ...send.background import BackgroundTask
from ...send.image.push import Pushed
from ...send.packages.base import Foreseeing
from .. import nodes
from ..backend import HostsBackend, RunHandle
from ..node import bare, group, overlay_plan, packages, roles, sent_folders, witness
from ..node.container import NodeContainer, Work
from ..node.overlay import OverlayEnds
from ..node.overlay_plan import Overlay
from ..node.shipment import Shipment
from . import meeting, observe, plan, preflight, resume, waits
from . import push as image_push
from .gpu_claims import GpuClaims, GpusTaken, waiting_facts

_NOTHING_LEFT = "the nodes that had started were removed; nothing of the run is left on any host"


@dataclass(frozen=True, kw_only=True)
class DeployRequest(Shipment):
    """What one deploy works with: what the user asked for, and the hosts with their facts."""

    work: Work
    force: bool = False
    wait: bool = False
    overlay: Overlay | None = None

    def containers(
        self, run_id: str, try_links: bool, interfaces: Mapping[str, str] | None = None
    ) -> tuple[NodeContainer, ...]:
        """What each host runs. Raises DeployError if the hosts have no route to each other; try_links also tests it.

        interfaces: by host, the interface to the network that preflight chose.
        """
        work = replace(self.work, run_id=run_id)
        hosts, job, facts = self.cluster.hosts, self.job, self.in_order
        if self.overlay:
            interfaces = {host.name: self.overlay.interface for host in hosts}
        met, addresses = meeting.choose_meeting(self, try_links, interfaces)
        made = roles.node_containers(hosts, facts, job, work, met, addresses)
        made = overlay_plan.with_overlay_ends(made, facts, job, work, self.overlay)
        made = group.with_groups(made, addresses, work, job.spares, job.arbiter)
        if try_links and work.least:
            peers = {
                host.name: [other for other in addresses if other != own]
                for host, own in zip(hosts, addresses, strict=True)
            }
            for register_port in work.ports:
                observe.refuse_unreached(self.sessions, peers, register_port)
        port = plan.choose_ports(facts, waits.draw_ports(), taken=(met.port,))[0] if work.waits else 0
        made = waits.with_claims(made, hosts, facts, work, waits.queue(addresses, port, facts[0]))
        port = plan.choose_ports(facts, witness.PORTS, taken=(met.port,))[0] if work.on_end else 0
        return witness.with_witnesses(made, hosts, facts, job, work, addresses, port)

    def for_waiting_nodes(self) -> DeployRequest:
        """Return the request for nodes that wait on their hosts."""
        asked = {session.name: session.host.gpus for session in self.sessions}
        facts = {host: waiting_facts(fact, asked[host]) for host, fact in self.facts.items()}
        return replace(self, facts=facts, work=replace(self.work, waits=True))


class NewRun(HostsBackend):
    """The nodes of a run that this command starts."""

    def __init__(
        self, request: DeployRequest, run: RunHandle, gpu_claims: GpuClaims, console: Console, interrupts: Interrupts
    ) -> None:
        super().__init__(request.sessions, run, console.warn)
        self._request, self._console, self._interrupts, self._gpu_claims = request, console, interrupts, gpu_claims
        self._preflight: dict[str, Any] = {}
        self._containers: Sequence[NodeContainer] = ()
        self._pushed: Mapping[str, Pushed] | None = None
        self._foreseen: Foreseeing | None = None
        self._ends: OverlayEnds | None = None

    @contextmanager
    def lock(self) -> Iterator[None]:
        """Hold the lock of every host. The lock comes first, so that a second deploy learns who is deploying."""
        self._interrupts.at("locking the hosts")
        request = self._request
        with lock.lock_hosts(request.sessions, self._id, lock.WAIT_S if request.wait else 0.0) as self._locks:
            request = self._request = self._looked_again(request)
            self._interrupts.at("choosing GPUs")
            try:
                self._gpu_claims.take()
            except HostsFailed as failed:
                if not request.wait or not all(isinstance(fault, GpusTaken) for fault in failed.faults.values()):
                    raise
                self._request = request.for_waiting_nodes()
                for fault in failed.faults.values():
                    self._console.note(f"its nodes will wait: {fault.message}")
            else:
                self._request = replace(request, facts=self._gpu_claims.narrow_facts(request.facts))
            try:
                yield
            finally:
                if self._ends:
                    self._ends.close()

    def _looked_again(self, request: DeployRequest) -> DeployRequest:
        """Return the request with the containers that exist now.

        Others may have held the locks since the look, with --wait for minutes. Raises DeployError if the run to resume
        is already running: this start would remove its nodes.
        """
        now = observe.containers(request.sessions).all()
        facts = {host: replace(fact, containers=now[host]) for host, fact in request.facts.items()}
        request = replace(request, facts=facts)
        if self.run.resumed:
            resume.refuse_running(self._id, request)
        return request

    def check(self) -> None:
        """Run preflight, inside the image if all hosts have it; then plan the nodes."""
        request = self._request
        self._bare = BackgroundTask(lambda: bare.begin(request))  # preflight leaves the hosts idle most of the time
        if self._request.overlay:
            self._pushed = self._push()
            self._open(self._request.overlay, self._pushed)
        self._interrupts.at("trying the links between the hosts")
        self._preflight = self._gate(after_push=False)
        self._interrupts.at("planning")
        unseen, interfaces = bool(self._preflight["unseen"]), self._preflight["interfaces"]
        planned, claims = self._request.containers(self._id, unseen, interfaces), self._gpu_claims.claim_names()
        self._containers = [replace(node, claim=claims.get(node.host, "")) for node in planned]
        for host, gpus in self.gpus.items():
            if gpus:
                self._console.note(f"{host}: GPU {', '.join(map(str, gpus))}")

    def prepare(self) -> None:
        """Push the image. If the hosts lacked it, run preflight again, now inside the image."""
        request, run_dir = self._request, self.run.run_dir
        record.write_json(run_dir / "preflight.json", self._preflight)
        pushed = self._pushed or self._push()
        self._containers = sent_folders.mount_folders(self._containers, pushed)
        # Record exactly which folder and data the run uses.
        sent = {"folder": sent_folders.digest_of(pushed) or None, "data": sent_folders.data_of(pushed) or None}
        sources = {host: dict(each.sources) for host, each in pushed.items() if each.sources}
        record.write_record(run_dir, {**record.facts(run_dir), **sent, "sources": sources or None})
        never_run = not (self._preflight["ran"] or request.force)
        if never_run:
            self._interrupts.at("trying the image", image_push.LEFT_BY_A_PUSH)
            self._preflight = self._gate(after_push=True)
            record.write_json(run_dir / "preflight.json", self._preflight)
        if request.requirements:
            self._interrupts.at("installing the packages", packages.LEFT_BY_AN_INSTALL)
        installed = packages.bring(request, pushed, self._console, self._foreseen)
        self._containers = packages.mount_packages(self._containers, installed)
        # While a run waits, its GPUs are used by others; its nodes rehearse on their own before they start.
        new_network = request.overlay and not request.force
        if (never_run or new_network) and not self.waits:
            self._rehearse()
        self._locks.refuse_lost()
        self._gpu_claims.refuse_lost()
        if self.run.resumed:
            nodes.remove(request.sessions, self._id).all()

    def _push(self) -> Mapping[str, Pushed]:
        request = self._request
        self._interrupts.at("pushing the image", image_push.LEFT_BY_A_PUSH)
        self._foreseen = bare.bring(request, self._console, self._bare.result())
        return image_push.bring(request, request.code(), self._console)

    def _open(self, overlay: Overlay, pushed: Mapping[str, Pushed]) -> None:
        """Make the network that preflight then tests. The hosts need the image first: it has the network tools."""
        self._interrupts.at("setting up the run's own network", image_push.LEFT_BY_A_PUSH)
        request = self._request
        made = sent_folders.mount_folders(request.containers(self._id, try_links=False), pushed)
        ends = {node.host: node.overlay for node in made if node.overlay}
        self._ends = OverlayEnds(request.sessions, ends, overlay)
        with self._console.waiting("overlay"):
            self._ends.open(self._console)

    def _rehearse(self) -> None:
        """Rehearse what is about to start: these hosts have never run this image. Raises Refused for a fault."""
        self._interrupts.at("rehearsing", image_push.LEFT_BY_A_PUSH)
        shown = preflight.rehearse(self._request, self._containers, self._preflight["backend"], self._console)
        record.write_json(self.run.run_dir / "preflight.json", {**self._preflight, "rehearsed": shown})

    def start(self) -> None:
        """Start the first host's node, then all others. Raises HostsFailed with every host that failed."""
        self._interrupts.at("starting the nodes", _NOTHING_LEFT)
        nodes.start(self._request.sessions, self._containers)
        if self._ends:
            self._ends.leave_to_nodes()

    def undo(self) -> None:
        """Remove what this start made on any host, and nothing else; warn about hosts where that failed."""
        self._console.note("removing what this start created")
        if left := nodes.undo(self._request.sessions, self._containers, self._console.warn):
            self._interrupts.left = left

    @property
    def waits(self) -> bool:
        """Whether the nodes wait on their hosts before their ranks start."""
        return self._request.work.waits

    @property
    def gpus(self) -> dict[str, list[int]]:
        """The numbers of the GPUs that the run gets, by host; empty if it waits: they are chosen later."""
        if self.waits:
            return {}
        facts = self._request.facts
        return {node.host: [gpu.index for gpu in facts[node.host].gpus] for node in self._containers}

    def _gate(self, after_push: bool) -> dict[str, Any]:
        request = self._request
        overlooked: tuple[str, ...] = ("gpu-busy",) if self.waits else ()
        # Without a free core, the run's own network drops packets; the rehearsal shows whether training tolerates that.
        overlooked += ("link-loss", "link-slow") if request.overlay and not request.force else ()
        images, before = (request.tag, request.base), self._preflight if after_push else None
        return preflight.gate(request, images, request.force, self._console, before, overlooked, request.work.ports)
