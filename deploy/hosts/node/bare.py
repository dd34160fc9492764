"""Bare hosts, which have no container engine: what a run cannot have there, and the environment that replaces an image.

There a container is a few processes of the login (engine/bare/), and an image is a Python environment: torch for the
driver and the processor. It is made once for each content, as a project's packages are (send/packages/).
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from ...core.errors import DeployError, UsageError
from ...core.text import amount, several
from ...door.session import Session, on_all
from ...engine import install_bare
from ...host import audit
from ...host.facts import HostFacts
from ...host.reached import ReachedHosts
from ...job.cluster import Cluster
from ...job.inventory import typed_hosts
from ...job.option_words import command_of
from ...job.options import FLAG, Job
from ...job.together import needs_engine
from ...report import packages as packages_shown
from ...report.console import Console
from ...run.environment import DATA
from ...send.background import BackgroundTask
from ...send.image import official
from ...send.image.model import BARE, at_home
from ...send.packages.base import Base, Foreseeing
from ...send.packages.places import DockerPlace
from ...send.packages.requirements import Requirements
from .shipment import Shipment

# The name of the environment that each bare host has from the start: its Python, without packages.
PYTHON = f"{BARE}python"
# Bytes that an environment needs on disk, including uv's cache for it.
_NEEDS_CPU, _NEEDS_CUDA = 2 << 30, 14 << 30
# Packages that a rank imports in addition to torch; and the agent's, with --min-nodes: no index has a wheel of it.
_RANK_PACKAGES, _AGENT_PACKAGES = "numpy\n", "pysyncobj==0.3.17\n"
# The folder for an environment that belongs to no folder: it has no files.
_NO_FOLDER = Path(os.devnull)


def are_all_bare(facts: Mapping[str, HostFacts]) -> bool:
    """Whether none of these hosts has an engine."""
    return bool(facts) and all(fact.bare for fact in facts.values())


def look(hosts: ReachedHosts, console: Console) -> None:
    """Report which hosts are bare: all or none of them. Raises UsageError for options that a run cannot have there."""
    bare = [host for host, fact in hosts.facts.items() if fact.bare]
    if not bare:
        return
    names = ", ".join(bare)
    if cannot := _cannot(hosts.cluster):
        typed = typed_hosts(host for host in hosts.cluster.hosts if host.name in bare)
        raise UsageError(
            f"{cannot}: {names} has no container engine, and a run of plain processes does not support this",
            f"leave it out; or, where you are root: {command_of('bootstrap', hosts=typed)}",
        )
    console.note(f"{names}: no container engine, so the run's nodes are plain processes of your login")
    if hosts.job.data:
        console.note(f"{names}: the data has other paths there, which your script finds in the variable {DATA}")
    if elsewhere := [host for host in bare if hosts.facts[host].home == "/workspace"]:
        console.note(f"{', '.join(elsewhere)}: the home folder is not writable: Muster's files go below /workspace")
    console.data({"kind": "bare", "hosts": bare})


def _cannot(cluster: Cluster) -> str:
    """What the user asked for that only an engine can do, in the user's words; empty if nothing."""
    moved = any(mount.source != mount.target for mount in cluster.mounts)
    return needs_engine(cluster.job) or f"{FLAG.mount} to another path" * moved


def base_of(facts: Mapping[str, HostFacts], job: Job) -> str:
    """The environment's name for these hosts: the torch version, its build for these GPUs, a digest of its content."""
    # PyTorch's index has the same builds for ARM; its images are for x86 only.
    machines = {
        host: official.Machine("x86_64", fact.driver, fact.capabilities) for host, fact in facts.items() if fact.gpus
    }
    tag = official.choose(machines)[0].tag if machines else official.USUAL.tag
    torch, cuda, *_ = tag.split("-")
    build = cuda.replace("cuda", "cu").replace(".", "") if machines else "cpu"
    content = _packages(torch, job) + repr(at_home({})).encode()
    return f"{BARE}{torch}-{build}-{hashlib.sha256(content).hexdigest()[:8]}"


def _packages(torch: str, job: Job) -> bytes:
    return f"torch=={torch}\n{_RANK_PACKAGES}{_AGENT_PACKAGES if job.min_nodes else ''}".encode()


class EnvironmentBuild(NamedTuple):
    """An environment that hosts lack: these hosts, their places, its packages, its torch build, and its resolution."""

    sessions: Sequence[Session]
    places: Sequence[DockerPlace]
    needs: Requirements
    build: str
    foreseen: Foreseeing


def begin(hosts: Shipment) -> EnvironmentBuild | None:
    """Begin to resolve the run's environment, if hosts lack it. Raises DeployError if a disk has too little room.

    It changes nothing on the hosts.
    """
    base, places = hosts.base, list[DockerPlace]()
    if not base.startswith(BARE):
        return None
    look = ("docker", "image", "inspect", base)
    lacks = on_all(hosts.sessions, lambda session: session.run(look, check=False).code).all()
    lacking = [session for session in hosts.sessions if lacks[session.name]]
    if not lacking:
        return None
    torch, build, _ = base.removeprefix(BARE).split("-")
    need = _NEEDS_CPU if build == "cpu" else _NEEDS_CUDA
    for session in lacking:
        name, fact = session.name, hosts.facts[session.name]
        if fact.room is not None and fact.room < need:
            raise DeployError(
                f"{name}: {amount(fact.room)} are free for {base}, which needs {amount(need)}",
                install_bare.OTHER_DISK.format(name),
            )
        owner, where = (fact.uid, fact.gid), session.host.destination
        places.append(DockerPlace(name, session, PYTHON, fact.user, owner, where=where, bare=True))
    path = f"torch-{torch}-{build}.txt"
    needs = Requirements(path, "torch", ((path, _packages(torch, hosts.job)),))
    foreseen = BackgroundTask(lambda: packages_shown.foresee(places, needs, _NO_FOLDER, build, None))
    return EnvironmentBuild(lacking, places, needs, build, foreseen)


def bring(hosts: Shipment, console: Console, making: EnvironmentBuild | None) -> Foreseeing | None:
    """Make the environment on each bare host that lacks it. Raises DeployError with the tool's own words.

    While the hosts install it, this machine resolves the folder's packages, which are installed on top of it.
    """
    if not making:
        return None
    base, build = hosts.base, making.build
    console.note(f"{several(len(making.sessions), 'host')}: making the environment {base}, once")
    ahead = []

    def resolve_next(coming: Base) -> None:
        needs, folder = hosts.requirements, hosts.folder
        if needs and folder:
            ahead.append(BackgroundTask(lambda: packages_shown.foresee((), needs, folder, build, coming)))

    made = packages_shown.install_packages(
        making.places, making.needs, console, _NO_FOLDER, build, resolve_next, making.foreseen
    )

    def name_it(session: Session) -> None:
        session.run(("docker", "image", "add", base, made.environments[session.name], *at_home({})))
        audit.note(session, audit.Action.MADE, base)

    on_all(making.sessions, name_it).all()
    return next(iter(ahead), None)
