"""A project's packages on hosts: what is asked and shown, and the containers that build them, within the run's memory.

packages/install.py does the work. `muster deploy` and `muster push` call this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...core.text import amount, several
from ...door.session import on_all
from ...host import audit
from ...job.cluster import Cluster
from ...report import packages as packages_shown
from ...report.console import Console
from ...send.folder.folder_look import FolderLook
from ...send.image.push import Pushed
from ...send.packages import commands, install
from ...send.packages.base import Foreseeing
from ...send.packages.places import DockerPlace
from ...send.packages.requirements import Requirements
from ...send.packages.store import Lock
from . import container, sent_folders
from .container import NodeContainer
from .shipment import Shipment

LEFT_BY_AN_INSTALL = (
    "nothing was started; downloads stay on the hosts for the next time, an incomplete installation does not"
)


def asked(
    cluster: Cluster, code: FolderLook | None, console: Console, words: Sequence[str] = ()
) -> Requirements | None:
    """Find and report the folder's requirements. Raises UsageError for a file that cannot work on a host."""
    return (
        packages_shown.read_requirements(cluster.job.requirements, code.folder, code.result(), console, words)
        if code
        else None
    )


def bring(
    shipment: Shipment,
    pushed: Mapping[str, Pushed],
    console: Console,
    foreseen: Foreseeing | None = None,
) -> install.Installed | None:
    """Install the packages on every host, if there are any, and report it. `pushed`: what the push did on each host.

    `foreseen`: the packages' lock, if it was resolved ahead. Raises DeployError with uv's own words.
    """
    if not shipment.requirements:
        return None
    assert shipment.folder is not None, "requirements come from a folder"
    places = _places(shipment, pushed)
    installed = packages_shown.install_packages(
        places, shipment.requirements, console, shipment.folder, foreseen=foreseen
    )
    if installed.size:
        words = f"{several(installed.lock.count, 'package')} ({amount(installed.size)})"
        on_all(shipment.sessions, lambda session: audit.note(session, audit.Action.INSTALLED, words))
    return installed


def print_plan(shipment: Shipment, pushed: Mapping[str, Pushed], console: Console) -> None:
    """Print what an install would run on each host. Changes nothing."""
    if not (needs := shipment.requirements):
        return
    for place in _places(shipment, pushed):
        is_bare = shipment.facts[place.name].bare
        argv = [] if is_bare else [*commands.install_container(place.box(), "PACKAGES", "DIGEST")]
        text = f"{place.name}: install the packages of {needs.path}, if they are missing"
        text += f"\n    {shlex.join(argv[:-1])} ..." * bool(argv)
        row = {"kind": "would install", "host": place.name, "requirements": needs.path, "argv": argv}
        console.line(text, row)


def with_planned_packages(nodes: Sequence[NodeContainer]) -> tuple[NodeContainer, ...]:
    """The containers as they would get packages: PACKAGES stands for the volume, dots for the image's own path."""
    volumes = {node.host: "PACKAGES" for node in nodes}
    return mount_packages(nodes, install.Installed(Lock(()), volumes, {host: {"PATH": "..."} for host in volumes}))


def mount_packages(nodes: Sequence[NodeContainer], installed: install.Installed | None) -> tuple[NodeContainer, ...]:
    """The containers with the packages, which come before the image's own packages on the path."""
    if not installed or not installed.environments:
        return tuple(nodes)
    return tuple(_with(node, installed.environments[node.host], installed.variables[node.host]) for node in nodes)


def _with(node: NodeContainer, volume: str, image: Mapping[str, str]) -> NodeContainer:
    variables = {**node.environment, **commands.variables(image, node.environment)}
    return replace(node, docker=node.docker.with_options(*commands.mount(volume)), environment=variables)


def _places(shipment: Shipment, pushed: Mapping[str, Pushed]) -> list[DockerPlace]:
    """The hosts' engines, for installs with the user and the limits of the run."""
    facts, job = shipment.facts, shipment.job
    return [
        DockerPlace(
            session.name,
            session,
            shipment.tag,
            (fact := facts[session.name]).user,
            container.ids_of(fact, job),
            container.memory_options(fact, job),
            sent_folders.mounts(pushed.get(session.name, Pushed(0, "")).folders),
            session.host.destination,
            fact.bare,
        )
        for session in shipment.sessions
    ]
