"""Decide where hosts meet and what has to be done on each: facts, containers in; steps with their reasons out. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..core.errors import DeployError
from ..core.names import RunId
from ..host.facts import Container, HostFacts
from ..run.environment import MASTER_PORT
from .container import NodeContainer

PORTS_TO_TRY = 100
GPU_IMAGE, CPU_IMAGE = "muster-trainer:gpu", "muster-trainer:cpu"


@dataclass(frozen=True)
class Step:
    """One thing to do on a host, in words, why, and the command; `argv` is empty where it is no single command."""

    host: str
    text: str
    reason: str
    argv: tuple[str, ...] = ()


def choose_address(facts: Sequence[HostFacts], interface: str | None = None) -> str:
    """The first host's address that its peers reach: in a network all of them share, if there is one.

    Else the one this machine reached it at by SSH, if it is its own; else its first. Addresses that several hosts have
    (bridges of container engines) are nobody's. Raises DeployError when none is left.
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
        raise DeployError(f"no address{where} that the other hosts could reach", "run there: ip addr")
    shared = [
        address
        for address in own
        if peers and all(any(address.shares_network(other) for other in peer.addresses) for peer in peers)
    ]
    reached = [address for address in own if address.address == master.reached_at]
    # Reached by SSH and shared comes first of all: it is known to work.
    both = [address for address in reached if address in shared]
    return (both or shared or reached or own)[0].address


def choose_port(master: HostFacts) -> int:
    """A port nobody listens on there, and that no run has claimed. Raises DeployError when all are taken."""
    taken = master.listening | {container.port for container in master.containers if container.code is None}
    for port in range(MASTER_PORT, MASTER_PORT + PORTS_TO_TRY):
        if port not in taken:
            return port
    raise DeployError(
        f"ports {MASTER_PORT} to {MASTER_PORT + PORTS_TO_TRY - 1} are all in use",
        "fab status --hosts ... lists the runs",
    )


def choose_image(facts: Sequence[HostFacts]) -> str:
    """The image of a run whose user named none: the one for GPUs where there are any."""
    return GPU_IMAGE if any(host.gpus for host in facts) else CPU_IMAGE


def steps(containers: Sequence[NodeContainer], pushes: Mapping[str, tuple[bool, str]]) -> tuple[Step, ...]:
    """All pushes, then all starts, the first host first. `pushes`: per host whether the image is there, and why."""
    made = [
        Step(one.host, f"push {one.image}", pushes[one.host][1], ("docker", "load", "--quiet"))
        for one in containers
        if one.host in pushes and not pushes[one.host][0]
    ]
    for place, one in enumerate(containers):
        reason = "first: the others meet on it" if place == 0 else f"meets {containers[0].node}"
        made.append(Step(one.host, f"start {one.node} as {one.name}", reason, one.argv))
    return tuple(made)


def told(made: Sequence[Step], containers: Sequence[NodeContainer]) -> list[str]:
    """The plan as `--dry-run` prints it: per step the host, what, why, the command; per host the variables."""
    if not made:
        return ["nothing to do"]
    lines = []
    for step in made:
        lines.append(f"{step.host}: {step.text} ({step.reason})")
        lines += [f"    {shlex.join(step.argv)}"] if step.argv else []
    for one in containers:
        lines.append(f"{one.host}: variables, by standard input")
        lines += [f"    {name}={value}" for name, value in sorted(one.environment.items())]
        lines += [f"    {name}=(secret)" for name in sorted(one.secrets)]
    return lines


def runs_of(containers: Mapping[str, Sequence[Container]]) -> dict[RunId, dict[str, Container]]:
    """Our runs by id, each with its container by host."""
    runs: dict[RunId, dict[str, Container]] = {}
    for host, found in containers.items():
        for container in found:
            if container.node and container.ours:
                runs.setdefault(container.run, {})[host] = container
    return dict(sorted(runs.items()))


def refuse_foreign(run: str, containers: Mapping[str, Sequence[Container]]) -> None:
    """Raise DeployError where another user of a host's engine has a run of that id: no second one can be there."""
    for host, found in containers.items():
        for container in found:
            if container.run == run and not container.ours:
                what = f"{run}: a run of that name on {host} belongs to {container.user}"
                raise DeployError(what, f"only {container.user} can stop or remove it")


def choose_run(runs: Mapping[RunId, Mapping[str, Container]], asked: str) -> RunId:
    """The run that is meant: the one named, or the only one that goes on. Raises DeployError with those there are."""
    if asked in runs:
        return RunId(asked)
    going = [run for run, nodes in runs.items() if any(node.code is None for node in nodes.values())]
    if not asked and len(going) == 1:
        return going[0]
    if not asked and len(runs) == 1:
        return next(iter(runs))
    there = f"there are {', '.join(runs)}" if runs else "no run is there"
    what = f"{asked} is not on these hosts" if asked else "which run?"
    raise DeployError(f"{what}: {there}", "name it: --run ID" if runs else "fab runs lists the runs on this machine")
