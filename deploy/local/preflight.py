"""The preflight of `make up` on this machine: for containers if an engine answers, otherwise for processes."""

from __future__ import annotations

import secrets
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from ..core.errors import DeployError, Refused
from ..core.program import remember_typed
from ..engine import client, compose
from ..preflight import Answers, PreflightRequest, Verdict, judge
from ..preflight.judge import judge_rehearsed
from ..preflight.probe import rehearsal, text
from ..preflight.probe.conversation import examine
from ..preflight.rehearsal import Scene, judged
from ..run import environment as spec
from ..run.files import folders
from . import backends, plan, up
from . import machine as observe
from .probe import LocalProbe

ONE_HOST = "this-machine"


@dataclass(frozen=True)
class Place:
    """Where the nodes would run.

    By name, commands that start a Python there: `look` for probes, `nodes` as a node would.
    """

    look: Mapping[str, Sequence[str]]
    nodes: Mapping[str, Sequence[str]]
    endpoint: str
    port: int


def preflight(
    workers: int | None, backend: str, request: PreflightRequest, proof: bool, say: Callable[[str], None]
) -> tuple[Answers, Verdict]:
    """The answers of all nodes, and the verdict on them. Raises DeployError if `make up` could not even begin."""
    say("looking at this machine")
    names = spec.node_names(up.DEFAULT_WORKERS if workers is None else workers)
    remember_typed(dict.fromkeys((ONE_HOST, *names), ""))  # they are not hosts: suggested commands leave them out
    choice, _ = up.choose_backend(backend)
    with (_containers if choice.name == "docker" else _processes)(names, request.port) as place:
        where = f"as `muster up` starts its nodes: {choice.why}"
        request = replace(request, endpoint=place.endpoint, port=place.port, where=where)
        with _started(place.look, text.text()) as probes:
            answers = examine(probes, request, say=say)
        verdict = judge(answers)
        if proof and verdict.ok and len(answers.hosts_with_facts) == len(answers.hosts):
            say("rehearsing")
            verdict = _rehearsed(place, answers, say)
    return answers, verdict


def _rehearsed(place: Place, answers: Answers, say: Callable[[str], None]) -> Verdict:
    """The verdict, combined with that of a rehearsal of the nodes."""
    names, request = list(place.nodes), answers.request
    endpoint = f"{place.endpoint}:{place.port}"
    # Nodes that are processes of one machine share its interface.
    first = next(iter(answers.plan.data.values()))
    interfaces = {name: answers.plan.data.get(name, first).interface for name in names}
    questions = {
        name: {
            "backend": request.backend,
            "environment": {
                "PET_NNODES": str(len(names)),
                "PET_NODE_RANK": str(number),
                "PET_RDZV_ENDPOINT": endpoint,
                "GLOO_SOCKET_IFNAME": interfaces[name],
                "NCCL_SOCKET_IFNAME": f"={interfaces[name]}",
                "MUSTER_RUN_DIR": "/tmp",
            },
        }
        for number, name in enumerate(names)
    }
    with _started(place.nodes, rehearsal.program()) as ranks:
        outcomes = rehearsal.rehearse(ranks, questions, say)
    scene = Scene(names, request.backend, endpoint, interfaces=interfaces)
    return judge_rehearsed(answers, (), *judged(outcomes, scene, rehearsal.LONG))


@contextmanager
def _containers(names: Sequence[str], port: int) -> Iterator[Place]:
    """The nodes as compose would make them, on a temporary network: for each node, the others are separate hosts."""
    user, group = observe.container_user()
    environment = {"MUSTER_UID": str(user), "MUSTER_GID": str(group), "WORKERS": str(len(names) - 1)}
    backends.refuse_no_build(folders.CHECKOUT)
    service = compose.service(folders.CHECKOUT / "docker-compose.yml", names[0], environment)
    image, more = str(service["image"]), compose.options(service)
    if not client.image_exists(image):
        raise Refused(f"there is no image {image} yet, and preflight runs inside it", "make image preflight")
    with compose.network(f"muster-preflight-{secrets.token_hex(4)}") as network:
        nodes = {name: compose.in_container(network, name, image, more) for name in names}
        yield Place(nodes, nodes, names[0], port)


@contextmanager
def _processes(names: Sequence[str], port: int) -> Iterator[Place]:
    """The nodes as processes. A single probe looks at this machine, which they share."""
    machine = observe.machine()
    plan.check_processes(machine)
    if machine.system != "Linux":
        raise DeployError("preflight needs Linux", "run `muster up`: it reports what is wrong here")
    chosen = plan.choose_port(port, observe.busy_ports(range(port, port + plan.PORTS_TO_TRY)))
    name = spec.LOOPBACK[machine.system]
    python = ["env", f"GLOO_SOCKET_IFNAME={name}", f"NCCL_SOCKET_IFNAME=={name}", sys.executable, "-P"]
    yield Place({ONE_HOST: python}, dict.fromkeys(names, python), "127.0.0.1", chosen)


@contextmanager
def _started(commands: Mapping[str, Sequence[str]], program: bytes) -> Iterator[list[LocalProbe]]:
    with ExitStack() as held:
        yield [held.enter_context(LocalProbe(name, argv, program=program)) for name, argv in commands.items()]
