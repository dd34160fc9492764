"""What a cluster.toml asks for: all of it but a short list that stays within the run's own containers.

A setting that is on no list here is asked for as it stands: a new one must be put on FREE to be free.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from . import env_file, script_file
from .inventory import Cluster, Host, Job
from .owner import stranger
from .values import Mount, Secret
from .wishes import Wish

# Names, numbers and limits of what runs in the run's containers: a file may set them unasked. It may also name a
# script, arguments, a folder and requirements, as long as they lie in its own folder.
FREE = frozenset({
    *("script", "args", "folder", "requirements", "environment", "keep", "cache", "separate", "observe", "rank"),
    *("processes", "gpus", "shm_size", "memory", "pids", "restarts", "max_hours", "wait_lost_s", "min_nodes"),
    "folder_limit",
})  # fmt: skip
# These are one line in the list of what is asked for: where a host is.
_OF_ADDRESS = frozenset({"name", "address", "port", "user", "gateway", "interface"})
# Variables that a host's engine reads: they decide which devices a container gets.
_REACHES_HOST = re.compile(r"NVIDIA_\w+")


def of(cluster: Cluster, path: Path) -> list[Wish]:
    """What the file asks for. `path`: the file; the cluster's paths are real ones.

    Raises UsageError for what no file may have: an `include` outside.

    The most dangerous stands last: on a screen it is right above the question.
    """
    here, owner = path.parent, stranger(path.parent, path)
    wishes = [*map(_host, cluster.hosts), *_settings(cluster, bool(owner)), *_outside(cluster.job, here)]
    wishes += [wish for host in cluster.hosts for wish in _of_host(host)]
    job = cluster.job
    wishes += [Wish("mount", f"{_mount(mount)} on all hosts") for mount in job.mounts]
    wishes += [_variables(file) for file in job.env_files]
    wishes += [_secret(secret) for secret in job.secrets]
    if owner:
        wishes.append(Wish("owner", f"{owner}: this folder is that user's, who can change it at any moment"))
    return wishes


def free(cluster: Cluster) -> list[Wish]:
    """What the file sets without being asked."""
    wishes = [
        Wish(name.replace("_", "-"), _as_written(value)) for name, value in _given(cluster.job, Job()) if name in FREE
    ]
    for host in cluster.hosts:
        # Hosts without GPUs of their own have the job's.
        usual = Host(host.name, host.address, gpus=cluster.job.gpus)
        own = ((name, _as_written(value)) for name, value in _given(host, usual) if name in FREE)
        wishes += [Wish(name, f"{value} on {host.name}", value, host.name) for name, value in own]
    return wishes


def outside(path: Path, folder: Path) -> str:
    """Where a path really leads if that is outside the folder, else an empty text."""
    real = os.path.realpath(path)
    return "" if Path(real).is_relative_to(os.path.realpath(folder)) else real


def _host(host: Host) -> Wish:
    way = f" through {host.gateway}" * bool(host.gateway) + f" on {host.interface}" * bool(host.interface)
    group = f"as {host.user or 'you'} at {_site(host.address)}" + f" port {host.port}" * bool(host.port) + way
    return Wish("host", f"{host.name} at {host.destination}{way}", group, host.name)


def _site(address: str) -> str:
    """What many hosts of one place share: `*.lab.org`, `10.0.*`."""
    numbers, rest = address.split("."), address.partition(".")[2]
    if len(numbers) == 4 and all(map(str.isdecimal, numbers)):
        return ".".join([*numbers[:2], "*"])
    return f"*.{rest}" if rest else "names of their own"


def _settings(cluster: Cluster, all_of_them: bool) -> Iterator[Wish]:
    """The job's settings, as the file says them; `all_of_them`: also the free ones."""
    own_lines = {"mounts", "env_files", "secrets", "include"}
    for name, value in _given(cluster.job, Job()):
        if name in own_lines or (name in FREE and not all_of_them):
            continue
        yield Wish(name.replace("_", "-"), _WORDS.get(name, _as_written)(value))
    for name, value in cluster.job.environment.items():
        if _REACHES_HOST.fullmatch(name):
            yield Wish("variable", f"{name}={value}: the hosts' engines read it")


def _outside(job: Job, here: Path) -> Iterator[Wish]:
    """What of the folder is not in it, and what is sent although it would stay here."""
    folder = job.folder or here
    if job.folder and (real := outside(job.folder, here)):
        yield Wish("folder", f"{real} is sent to the hosts")
    script = script_file.file_of(_words(job.script))
    for kind, name in (("script", script), ("requirements", job.requirements)):
        if name and (real := outside(folder / name, folder)):
            yield Wish(kind, f"{name} leads to {real}")
    for name in job.include:
        if real := outside(folder / name, folder):
            raise UsageError(f"include: {name} leads out of the folder, to {real}", "take it out of the file")
        yield Wish("include", f"{name} is sent, even where it is a credential")


def _of_host(host: Host) -> Iterator[Wish]:
    for mount in host.mounts:
        yield Wish("mount", f"{_mount(mount)} on {host.name}", _mount(mount), host.name)
    for name, value in host.environment.items():
        if _REACHES_HOST.fullmatch(name):
            yield Wish("variable", f"{name}={value} on {host.name}: its engine reads it")
    known = FREE | _OF_ADDRESS | {"mounts"}
    for name, value in _given(host, Host(host.name, host.address)):
        if name not in known:
            yield Wish(name.replace("_", "-"), f"{_as_written(value)} on {host.name}")


def _given(settings: Host | Job, usual: Host | Job) -> Iterator[tuple[str, Any]]:
    """The fields that are not as they are where the file says nothing."""
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if value != getattr(usual, entry.name, None):
            yield entry.name, value


def _as_written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


_WORDS: Mapping[str, Callable[[Any], str]] = {
    "dockerfile": lambda path: f"{path} is built on this machine, with the folder it lies in",
    "on_end": lambda words: f"{words} once the run has ended",
    "user": lambda number: f"{number} owns the run's processes on the hosts",
    "overlay": lambda _: "a network of the run's own, over a port of the hosts",
}


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []  # the command is refused where it is read


def _mount(mount: Mount) -> str:
    mode = ":ro" if mount.read_only else ":create" if mount.create else ""
    return f"{mount.source}:{mount.target}{mode}"


def _variables(path: Path) -> Wish:
    names = env_file.of_shell(path)
    return Wish("variables", f"of {path}" + f", with {', '.join(names)} of this shell" * bool(names))


def _secret(secret: Secret) -> Wish:
    return Wish("secret", f"{secret.name} from {secret.file or 'this shell'}{', as a file' * secret.as_file}")
