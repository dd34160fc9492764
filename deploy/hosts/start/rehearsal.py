"""Rehearse a run on real hosts: run node/probe/rehearsal.py in the containers that the run would start.

The `docker run` is the deploy's own: the image, user, network, mounts, shared memory, limits, GPUs and variables are
the same. Name, labels, restart policy, run folder and command are the rehearsal's.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any

from ...causes import docker_faults
from ...causes.finding import UNKNOWN, Finding, find
from ...core.errors import DeployError
from ...core.results import Results
from ...door.session import Session, on_all
from ...engine.compose import ONCE
from ...host import commands
from ...host.facts import HostFacts
from ...host.reached import ReachedHosts
from ...job.options import Job
from ...job.values import Mount
from ...preflight import Answers, prediction
from ...preflight.probe import rehearsal
from ...preflight.rehearsal import Scene, judged
from ...run.environment import KEEP
from ..node import container
from ..node.container import NodeContainer
from ..node.docker_run import python_of
from . import probe_ends, probes
from .probes import SessionProbe

END_S = 20.0
# The rehearsal's own claim (scripts/rehearse.sh), mounted where a run's claim would be.
_CLAIM = "/var/tmp/muster-claims."

Say = Callable[[str], None]
# Its findings, and what it has shown, in words; the words are empty if a host failed.
Rehearsed = tuple[list[Finding], str]


def rehearse(
    hosts: ReachedHosts,
    nodes: Sequence[NodeContainer],
    backend: str,
    long: int = rehearsal.LONG,
    say: Say = lambda phase: None,
) -> Rehearsed:
    """Rehearse these nodes, in their order. Leaves nothing on the hosts; a host that fails is a finding."""
    program, by_host = rehearsal.program(), {node.host: node for node in nodes}
    by_name = {session.name: session for session in hosts.sessions}

    def start(session: Session) -> SessionProbe:
        node, folder = by_host[session.name], folder_of(by_host[session.name], secrets.token_hex(6))
        command = commands.rehearse(folder, node.owner, node.keep, argv_of(node, folder))
        return SessionProbe(session, command, program, commands.base64_line(commands.variable_lines(node.environment)))

    folders = {host: writable(by_name[host], node, hosts.job) for host, node in by_host.items()}
    shared = {"backend": backend, "bytes": long, "expect": "here"}
    questions = {host: {**shared, "folders": folders[host]} for host in by_host}
    started = on_all([by_name[node.host] for node in nodes], start)
    seen, shown = _asked(started, questions, scene_of(nodes, hosts.facts, backend), long, say)
    probe_ends.remove_unstarted(
        [by_name[each.hosts[0]] for each in seen if docker_faults.gives_no_connection(each.text)]
    )
    return seen, shown


def bare(sessions: Sequence[Session], answers: Answers, python: str, long: int, say: Say) -> Rehearsed:
    """Rehearse with the hosts' own Python, as another launcher starts ranks: no variable sets their interface."""
    plan, request = answers.plan, answers.request
    order = [answers.rendezvous_host, *(host for host in answers.hosts if host != answers.rendezvous_host)]
    endpoint = f"{f'[{plan.endpoint}]' if ':' in plan.endpoint else plan.endpoint}:{request.port}"
    program, by_name = rehearsal.program(), {session.name: session for session in sessions}

    def variables(place: int, host: str) -> dict[str, str]:
        return {
            "PET_NNODES": str(len(order)),
            "PET_NODE_RANK": str(place),
            "PET_RDZV_ENDPOINT": endpoint,
            "PET_NPROC_PER_NODE": str(_gpus(answers.facts[host]) if request.backend == "nccl" else 1),
            **request.environment,
        }

    question = {"backend": request.backend, "bytes": long}
    questions = {host: {**question, "environment": variables(place, host)} for place, host in enumerate(order)}
    started = on_all([by_name[host] for host in order], lambda session: SessionProbe(session, [python], program))
    addresses = {host: frozenset(prediction.own_addresses(answers.facts[host])) for host in order}
    scene = Scene(order, request.backend, endpoint, dict.fromkeys(order, "."), addresses)
    return _asked(started, questions, scene, long, say)


def folder_of(node: NodeContainer, token: str) -> str:
    """The rehearsal's run folder, next to the runs' folders: on the same disk, with a name that no run has."""
    return f"{node.folder.rpartition('/')[0]}/.rehearsal-{token}"


def argv_of(node: NodeContainer, folder: str) -> tuple[str, ...]:
    """The node's `docker run` with another name, folder and command: the image's Python; its arguments follow."""
    options = (_elsewhere(word, node.folder, folder) for word in node.docker.options)
    claim = container.mount_option(Mount(f"{_CLAIM}{folder.rpartition('/.')[2]}", "/muster/claim.lock", False))
    return (*ONCE, "--mount", claim, *options, "--env-file", commands.VARIABLES_ASIDE, *python_of(node.image))


def scene_of(nodes: Sequence[NodeContainer], facts: Mapping[str, HostFacts], backend: str) -> Scene:
    """What the findings need to know about the nodes."""
    return Scene(
        [node.host for node in nodes],
        backend,
        nodes[0].environment["PET_RDZV_ENDPOINT"],
        {node.host: node.folder.rpartition("/")[0] for node in nodes},
        {host: frozenset(entry.address for entry in fact.addresses) for host, fact in facts.items()},
        {node.host: node.environment.get("GLOO_SOCKET_IFNAME", "") for node in nodes},
        {node.host: node.memory for node in nodes},
        frozenset(node.host for node in nodes if facts[node.host].rdma),
        nodes[0].image,
    )


def writable(session: Session, node: NodeContainer, job: Job) -> list[str]:
    """Folders in the container, besides the run's own, that the run may write to: those of --keep and of the mounts."""
    return [*node.keep, *(mount.target for mount in container.mounts(session.host, job) if not mount.read_only)]


def without_interfaces(node: NodeContainer, job: Job) -> NodeContainer:
    """The node as another launcher starts it: only the job itself may set an interface."""
    ours = {"GLOO_SOCKET_IFNAME", "NCCL_SOCKET_IFNAME"} - job.environment.keys()
    return replace(node, environment={name: value for name, value in node.environment.items() if name not in ours})


def _asked(
    started: Results[SessionProbe], questions: Mapping[str, Mapping[str, Any]], scene: Scene, long: int, say: Say
) -> Rehearsed:
    try:
        if started.faults:
            return [unstarted(host, fault) for host, fault in started.faults.items()], ""
        outcomes = rehearsal.rehearse(list(started.values.values()), questions, say)
        _await_ends(started.values.values())
    finally:
        probes.close(started)
    return judged(outcomes, scene, long)


def _await_ends(started: Iterable[SessionProbe]) -> None:
    """Wait until the containers are gone: the run that follows needs their port and their GPUs."""

    def wait(probe: SessionProbe) -> None:
        with suppress(DeployError):
            probe.finish()
            probe.read(END_S)

    ending = [threading.Thread(target=wait, args=(probe,), daemon=True) for probe in started]
    for thread in ending:
        thread.start()
    for thread in ending:
        thread.join()


def _elsewhere(word: str, old: str, new: str) -> str:
    end = f"/{KEEP}" if word.startswith("type=") else ":"
    return word.replace(old + end, new + end)


def _gpus(facts: Mapping[str, Any]) -> int:
    """How many GPUs a host's probe saw; at least 1."""
    return max(1, (facts.get("cuda") or {}).get("count", 0) or len((facts.get("gpus") or {}).get("rows", ())))


def unstarted(host: str, fault: DeployError) -> Finding:
    """The finding for a host where the rehearsal could not begin: the message of what failed."""
    return find(
        "proof-failed",
        host,
        f"the rehearsal did not start: {fault.message.removeprefix(f'{host}: ')}",
        fault.hint,
        UNKNOWN,
    )
