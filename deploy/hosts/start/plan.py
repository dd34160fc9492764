"""Choose the rendezvous address, port and image, and list the steps for each host with their reasons. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...core.errors import DeployError
from ...core.text import amount
from ...host.facts import HostFacts
from ...run.environment import MASTER_PORT
from ...send.image import push_plan
from ...send.image.push_plan import PushPlan
from ..node.container import NodeContainer

PORTS_TO_TRY = 100
GPU_IMAGE, CPU_IMAGE = "muster-trainer:gpu", "muster-trainer:cpu"


@dataclass(frozen=True)
class Step:
    """One step on a host: its text, its reason and its command; `argv` is empty if it is not a single command."""

    host: str
    text: str
    reason: str
    argv: tuple[str, ...] = ()


def choose_address(facts: Sequence[HostFacts], interface: str | None = None) -> str:
    """Choose the first host's address for the rendezvous: one in a network that all hosts share, if there is one.

    Otherwise the address that SSH reached, if the host itself has it; otherwise the host's first address. An address
    that several hosts have (a bridge of a container engine) does not count. Raises DeployError if none is left.
    """
    master, *peers = facts
    foreign = {address.address for peer in peers for address in peer.addresses}
    own = [
        address
        for address in master.addresses
        if address.address not in foreign and interface in (None, address.interface)
    ]
    if not own:
        where = f" on {interface}" if interface else ""
        raise DeployError(f"it has no address{where} that the other hosts could reach", "on that host: ip addr")
    shared = [
        address
        for address in own
        if peers and all(any(address.shares_network(other) for other in peer.addresses) for peer in peers)
    ]
    reached = [address for address in own if address.address == master.reached_at]
    # An address that is shared and that SSH reached comes first: it is known to work.
    both = [address for address in reached if address in shared]
    return (both or shared or reached or own)[0].address


def platform(facts: Mapping[str, HostFacts]) -> str:
    """The platform of all hosts, like `linux/amd64`; empty if no host reports it. Raises DeployError if they differ."""
    machines = {host: look.architecture for host, look in facts.items() if look.architecture}
    if len(set(machines.values())) > 1:
        listed = ", ".join(f"{host} {machine}" for host, machine in machines.items())
        kinds = list(machines.values())
        most = max(kinds, key=kinds.count)
        alike = ",".join(host for host, machine in machines.items() if machine == most)
        raise DeployError(
            f"the hosts have different architectures: {listed}; one image cannot run on both",
            f"use hosts with the same architecture: --hosts {alike}",
        )
    return push_plan.platform(next(iter(machines.values()))) if machines else ""


def choose_port(master: HostFacts) -> int:
    """A rendezvous port that is free on this host and that no run has claimed. Raises DeployError if all are taken."""
    claimed = {container.port for container in master.containers if container.code is None}
    return choose_ports([master], range(MASTER_PORT, MASTER_PORT + PORTS_TO_TRY), taken=claimed)[0]


def choose_ports(
    facts: Sequence[HostFacts], ports: Sequence[int], count: int = 1, taken: Collection[int] = ()
) -> tuple[int, ...]:
    """The first `count` of these ports that are free on all hosts. Raises DeployError if too few are free."""
    busy = frozenset(taken).union(*(fact.listening for fact in facts))
    free = tuple(port for port in ports if port not in busy)[:count]
    if len(free) < count:
        raise DeployError(
            f"ports {min(ports)} to {max(ports)} are all in use", "muster status --hosts ... lists the runs"
        )
    return free


def choose_image(facts: Sequence[HostFacts]) -> str:
    """The image of a run whose user chose none: the GPU image if any host has a GPU."""
    return GPU_IMAGE if any(host.gpus for host in facts) else CPU_IMAGE


def steps(containers: Sequence[NodeContainer], pushes: Mapping[str, PushPlan], image: str) -> tuple[Step, ...]:
    """List all pushes, then all starts, the first host first. `pushes`: what each host gets; `image`: in words."""
    planned = []
    for container in containers:
        push = pushes.get(container.host)
        if push and not push.present:
            planned.append(Step(container.host, f"push {image}", push.why, ("docker", "load", "--quiet")))
        for folder in push.folders if push else ():
            if folder.lacking:
                what = f"data, {amount(folder.bytes)}," if folder.is_data else "folder"
                planned.append(Step(container.host, f"send the {what} to {folder.place}", folder.lacking))
    for container in containers:
        if container.overlay:
            what, reason = f"make the network's end for {container.node}", "--overlay: before preflight tries the links"
            planned.append(Step(container.host, what, reason, container.overlay.argv))
    for index, container in enumerate(containers):
        reason = "first, because the other nodes meet on it" if index == 0 else f"meets {containers[0].node}"
        planned.append(Step(container.host, f"start {container.node} as {container.name}", reason, container.argv))
    for container in containers:
        if container.witness:
            what, reason = f"start the witness of {container.node}", "for --on-end, whatever the run's verdict"
            planned.append(Step(container.host, what, reason, container.witness.argv))
    return tuple(planned)


def plan_lines(steps: Sequence[Step], containers: Sequence[NodeContainer]) -> list[str]:
    """The plan as `--dry-run` prints it: each step with its reason and command, then each host's variables."""
    lines = []
    for step in steps:
        lines.append(f"{step.host}: {step.text} ({step.reason})")
        lines += [f"    {shlex.join(step.argv)}"] if step.argv else []
    for container in containers:
        lines.append(f"{container.host}: variables, by standard input")
        lines += [f"    {name}={value}" for name, value in sorted(container.environment.items())]
        lines += [f"    {name}=(secret)" for name in sorted(container.secrets)]
    return lines
