"""The one way from a cluster.toml to a Cluster: what the file asks for is asked first, and the file is read once."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..core.errors import UsageError
from . import asked, consent, inventory
from .inventory import Cluster, Host, Job


def load(flag: str, named: str) -> Cluster:
    """The hosts of `--hosts` with their settings in cluster.toml; without the flag, all hosts of the file.

    `named` is the file of --cluster; otherwise cluster.toml of this folder, if it exists. Raises UsageError for an
    error in either, if both are missing, and if the user does not allow what the file asks for.
    """
    path = Path(named) if named else Path("cluster.toml")
    if not named and not path.is_file():
        return inventory.from_flag(flag)
    if not named and (real := asked.outside(path, path.parent)):
        raise UsageError(
            f"cluster.toml leads out of this folder, to {real}", f"if you mean that file: --cluster {real}"
        )
    cluster = consent.once(path, _allowed)
    hosts = _picked(inventory.from_flag(flag).hosts, cluster.hosts) if flag.strip() else cluster.hosts
    return replace(cluster, hosts=hosts)


def _allowed(path: Path) -> Cluster:
    cluster = inventory.from_file(path)
    cluster = replace(cluster, job=_resolved(cluster.job, path.parent))
    consent.require(path.parent, asked.of(cluster, path), str(path), asked.free(cluster))
    return cluster


def _resolved(job: Job, here: Path) -> Job:
    """The job with the paths that are shown and used: a link that leads elsewhere by then leads nobody there."""
    folder = Path(asked.outside(job.folder, here) or job.folder) if job.folder else None
    secrets = tuple(
        secret._replace(file=Path(os.path.realpath(secret.file)), shown=True) if secret.file else secret
        for secret in job.secrets
    )
    env_files = tuple(Path(os.path.realpath(file)) for file in job.env_files)
    dockerfile = Path(os.path.realpath(job.dockerfile)) if job.dockerfile else None
    return replace(job, folder=folder, secrets=secrets, env_files=env_files, dockerfile=dockerfile)


def _picked(wanted: Sequence[Host], known: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts of --hosts with their settings in the file; user and port of the flag override these."""
    by_name = {host.name: host for host in known}
    picked = []
    for host in wanted:
        known_host = by_name.get(host.name, host)
        picked.append(replace(known_host, user=host.user or known_host.user, port=host.port or known_host.port))
    return tuple(picked)
