"""A project's packages on hosts: what is asked, what is shown, and the containers that get them.

packages/install.py does the work. `fab deploy` and `fab push` call this module.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from ..config.inventory import Cluster
from ..core.text import amount, several
from ..host.facts import HostFacts
from ..image import code_layer
from ..image.credentials import Choice
from ..packages import commands, install, requirements, settings
from ..packages.requirements import Requirements
from ..report.console import Console
from ..ssh.session import Session
from . import container
from .container import NodeContainer

LEFT_BY_AN_INSTALL = "nothing was started; downloads stay on the hosts for the next time, half an install does not"


@dataclass(frozen=True)
class Target:
    """The hosts that get packages, and the image these go with. `facts` by host."""

    cluster: Cluster
    sessions: Sequence[Session]
    facts: Mapping[str, HostFacts]
    tag: str


def asked(cluster: Cluster, folder: Path | None, choice: Choice, console: Console) -> Requirements | None:
    """The requirements of the folder, which this says. Raises UsageError for a file that cannot work on a host."""
    wanted = cluster.job.requirements
    if folder is None:
        return None
    sent = code_layer.sent(folder, choice)
    path, by_itself = requirements.find(folder, wanted, sent)
    if not path:
        return None
    if by_itself:
        console.note(f"packages: {path} of the folder (--requirements no leaves them out)")
    for where in requirements.own_indexes(needs := requirements.read(folder, path, sent)):
        console.note(f"packages: {where} names an index of its own")
    console.data({"kind": "requirements", "path": path, "found": by_itself})
    return needs


def bring(target: Target, needs: Requirements, console: Console) -> install.Installed:
    """Install the packages on every host and say what was done. Raises DeployError with uv's own words."""
    own = settings.of_user()
    if own.left:
        console.warn(f"packages: {', '.join(own.left)} is only on this machine: hosts cannot install from it")
    with console.waiting("packages") as say:
        installed = install.bring(
            target.sessions, _asked(target, needs, own), lambda host, words: say(f"{host}: {words}")
        )
    count, hosts = len(installed.lock.lines), several(len(target.sessions), "host")
    words = "the image has them all"
    if installed.volumes:
        words = f"{several(count, 'package')} beside torch {installed.lock.base.get('torch', '')} of the image"
        done = f", {amount(installed.size)} on each" if installed.size else ""
        words += f", installed{done}: the same files on {hosts}" if installed.size else f": {hosts} have them"
    console.note(f"packages: {needs.path}: {words}")
    if installed.lock.left_out:
        console.note(f"packages: left out, the image has no CUDA: {requirements.reasons(installed.lock.left_out)}")
    console.data({"kind": "packages", "path": needs.path, "count": count, "bytes": installed.size,
                  "sent": installed.sent, "volumes": dict(installed.volumes)})  # fmt: skip
    return installed


def foretell(target: Target, needs: Requirements, console: Console) -> None:
    """Print what an install would run on each host. Changes nothing."""
    want = _asked(target, needs, settings.of_user())
    for session in target.sessions:
        host = session.host.name
        cache = commands.cache(want.owners[host][0])
        argv = commands.container(target.tag, want.users[host], cache, "PACKAGES", "DIGEST", want.limits[host])
        text = f"{host}: install the packages of {needs.path}, if it lacks them\n    {shlex.join(argv[:-1])} ..."
        console.line(text, {"kind": "would install", "host": host, "requirements": needs.path, "argv": list(argv)})


def give(nodes: Sequence[NodeContainer], installed: install.Installed | None) -> tuple[NodeContainer, ...]:
    """The containers with the packages, which come before the image's own on their path."""
    return tuple(
        _with(node, installed.volumes[node.host], installed.image) if installed and installed.volumes else node
        for node in nodes
    )


def _with(node: NodeContainer, volume: str, image: Mapping[str, str]) -> NodeContainer:
    at = node.argv.index("--env-file")
    argv = (*node.argv[:at], *commands.mount(volume), *node.argv[at:])
    return replace(node, argv=argv, environment={**node.environment, **commands.variables(image, node.environment)})


def _asked(target: Target, needs: Requirements, own: settings.Settings) -> install.Asked:
    facts, job = target.facts, target.cluster.job
    owners = {
        host: (fact.uid, fact.gid) if fact.uid else (job.user or 0, job.user or 0) for host, fact in facts.items()
    }
    limits = {host: container.memory_options(fact, job) for host, fact in facts.items()}
    users = {host: fact.user for host, fact in facts.items()}
    return install.Asked(needs, own, target.tag, users, owners, limits)
