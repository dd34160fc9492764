"""What a cluster.toml must ask the user for: every setting, except a few that affect only the run's own containers.

The `asks` of a setting's key in the table of options says whether it is free. A setting without a row there is asked
for with its bare value.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from . import script_file
from .allowed import other_owner
from .consent import Wish
from .inventory import Host
from .options import AS_IT_STANDS, FREE, KEYS, Job
from .roles import role
from .secrets import names_of_shell
from .values import Mount, Secret

_BY_KEY = {key.name: key for key in KEYS.values()}
# Settings that need no permission: names, numbers and limits that affect only the run's containers. A file may also set
# a script, arguments, a folder and requirements, as long as these are in its own folder.
_FREE_FIELDS = frozenset({"roles", *(name for name, key in _BY_KEY.items() if key.asks == FREE)})
# Settings of which each value gets a line of its own, below.
_OWN_LINES = frozenset({"mounts", "env_file", "secrets", "include", "data"})
# Fields that say where a host is: together they are one line in the list of wishes.
_ADDRESS_FIELDS = frozenset({"name", "address", "port", "user", "gateway", "interface"})
# Variables that the container runtimes of GPU makers read on a host: they decide which devices, drivers and mounts a
# container gets. The devices of these three, and of Ascend's `RT`, only choose among those that a container has; a
# library in the container reads NVIDIA_TF32_OVERRIDE.
_REACHES_HOST = re.compile(
    r"(NVIDIA(?!_TF32_OVERRIDE$)|DOCKER_RESOURCE|ASCEND_(RUNTIME|VNPU|ALLOW))_\w+|\w+_DRIVER_CAPABILITIES|"
    r"(?!(CUDA|HIP|ROCR|ASCEND_RT)_)\w+_VISIBLE_DEVICES"
)


def wishes(hosts: Sequence[Host], job: Job, path: Path) -> list[Wish]:
    """What the file asks for. `path`: the file; the job's paths have their links resolved.

    Raises UsageError for what no file may have: an `include` outside the folder.

    The most dangerous wishes come last: on the screen they are right above the question.
    """
    here, owner = path.parent, other_owner(path.parent, path)
    asked = [*map(_host, hosts), *_settings(job, bool(owner)), *_outside(job, here)]
    asked += [wish for host in hosts for wish in _of_host(host, bool(owner))]
    asked += [Wish("mount", f"{_mount(mount)} on all hosts") for mount in job.mounts]
    asked += [Wish("data", f"all of {data.source}, to {data.target} on the hosts") for data in job.data]
    # A file outside the folder is not opened before the user agrees; `variables` asks afterwards for what it takes from
    # this shell.
    asked += [Wish("variables", f"of {file}") if path_outside(file, here) else variables(file) for file in job.env_file]
    asked += [_secret(secret) for secret in job.secrets]
    if owner:
        asked.append(Wish("owner", f"{owner}: this folder belongs to that user, who can change it at any moment"))
    return asked


def free_settings(hosts: Sequence[Host], job: Job) -> list[Wish]:
    """The settings in the file that need no permission."""
    unasked = [
        Wish(name.replace("_", "-"), _as_written(value)) for name, value in _given(job, Job()) if name in _FREE_FIELDS
    ]
    for host in hosts:
        # A host without a setting for GPUs has the job's.
        usual = Host(host.name, host.address, gpus=job.gpus)
        own = ((name, _as_written(value)) for name, value in _given(host, usual) if name in _FREE_FIELDS)
        unasked += [Wish(name, f"{value} on {host.name}", value, host.name) for name, value in own]
    return unasked


def path_outside(path: Path, folder: Path) -> str:
    """The real path behind `path` if it is outside the folder, else empty text."""
    real = os.path.realpath(path)
    return "" if Path(real).is_relative_to(os.path.realpath(folder)) else real


def _host(host: Host) -> Wish:
    way = f" through {host.gateway}" * bool(host.gateway) + f" on {host.interface}" * bool(host.interface)
    group = f"as {host.user or 'you'} at {_site(host.address)}" + f" port {host.port}" * bool(host.port) + way
    return Wish("host", f"{host.name} at {host.destination}{way}", group, host.name)


def _site(address: str) -> str:
    """The part of an address that many hosts of one site share: `*.lab.org`, `10.0.*`."""
    numbers, rest = address.split("."), address.partition(".")[2]
    if len(numbers) == 4 and all(map(str.isdecimal, numbers)):
        return ".".join([*numbers[:2], "*"])
    return f"*.{rest}" if rest else "names of their own"


def _settings(job: Job, all_of_them: bool) -> Iterator[Wish]:
    """The job's settings as wishes; `all_of_them`: also the free ones."""
    for name, value in _given(job, Job()):
        if name in _OWN_LINES or (name in _FREE_FIELDS and not all_of_them):
            continue
        words = _BY_KEY[name].asks if name in _BY_KEY else AS_IT_STANDS
        yield Wish(name.replace("_", "-"), (words or AS_IT_STANDS).format(_as_written(value)))
    for name, value in job.environment.items():
        if _REACHES_HOST.fullmatch(name):
            yield Wish("variable", f"{name}={value}, which the container engines on the hosts read")


def _outside(job: Job, here: Path) -> Iterator[Wish]:
    """Paths of the job that lead outside the folder, and files that are sent although Muster would leave them out."""
    folder = job.folder or here
    if job.folder and (real := path_outside(job.folder, here)):
        yield Wish("folder", f"{real} is sent to the hosts")
    script = script_file.file_of(_words(job.script))
    of_roles = [("role", word) for text in job.roles for word in _words(role.read(text).command)]
    for kind, name in (("script", script), ("requirements", job.requirements), *of_roles):
        if name and (real := path_outside(folder / name, folder)):
            yield Wish(kind, f"{name} leads to {real}")
    for name in job.include:
        if real := path_outside(folder / name, folder):
            raise UsageError(f"include: {name} is a link out of the folder, to {real}", "take it out of the file")
        yield Wish("include", f"{name} is sent, even if it is a credential")


def _of_host(host: Host, all_of_them: bool) -> Iterator[Wish]:
    for mount in host.mounts:
        yield Wish("mount", f"{_mount(mount)} on {host.name}", _mount(mount), host.name)
    for name, value in host.environment.items():
        if _REACHES_HOST.fullmatch(name):
            yield Wish("variable", f"{name}={value} on {host.name}, which its container engine reads")
    for name, value in _given(host, Host(host.name, host.address)):
        if name not in _ADDRESS_FIELDS | {"mounts"} and (name not in _FREE_FIELDS or all_of_them):
            yield Wish(name.replace("_", "-"), f"{_as_written(value)} on {host.name}")


def _given(settings: Host | Job, usual: Host | Job) -> Iterator[tuple[str, Any]]:
    """The fields that differ from their defaults."""
    for entry in fields(settings):
        value = getattr(settings, entry.name)
        if value != getattr(usual, entry.name, None):
            yield entry.name, value


def _as_written(value: Any) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name}={text}" for name, text in value.items())
    return ", ".join(map(str, value)) if isinstance(value, tuple) else str(value)


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError:
        return []  # the command is refused where it is read


def _mount(mount: Mount) -> str:
    mode = ":ro" if mount.read_only else ":create" if mount.create else ""
    return f"{mount.source}:{mount.target}{mode}"


def variables(path: Path) -> Wish:
    """The wish for a file of variables, with the names of the variables that it takes from this shell."""
    try:
        names = names_of_shell(path)
    except UsageError:  # a start is refused for it, but an existing run can still be stopped
        return Wish("variables", f"of {path}, once it can be read")
    return Wish("variables", f"of {path}" + f", with {', '.join(names)} of this shell" * bool(names))


def _secret(secret: Secret) -> Wish:
    return Wish("secret", f"{secret.name} from {secret.file or 'this shell'}{', as a file' * secret.as_file}")
