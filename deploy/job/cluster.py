"""The hosts of a command and their job, from `--hosts a,b` or from a cluster.toml that the user has allowed.

The file's keys are those of the table of options. A command reads the file once, so it uses exactly what the user was
asked about.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.formats import CLUSTER_FILE, refuse_newer
from . import consent, toml, values, wishes
from .inventory import Host, hosts_of_flag, named_hosts
from .options import FLAG, KEYS, Job, Key, keys_of, rules_of
from .roles import role
from .toml import Table
from .values import Data, Mount

# The options whose keys the table of a host may have, too.
_HOST_OPTIONS = ("gpus", "image", "env", "mount")
# The values that apply where the file says nothing.
_DEFAULT_HOST, _DEFAULT_JOB = Host("", ""), Job()


@dataclass(frozen=True)
class Cluster:
    """The hosts in the user's order (the first is the master), and their job.

    `fault`: why no run may start with what the file says about the job. It does not matter for an existing run.
    """

    hosts: tuple[Host, ...]
    job: Job = _DEFAULT_JOB
    fault: UsageError | None = field(default=None, compare=False)

    @property
    def mounts(self) -> tuple[Mount, ...]:
        """All mounts: those of the job, and those of single hosts."""
        return (*self.job.mounts, *(mount for host in self.hosts for mount in host.mounts))


def from_flag(flag: str) -> Cluster:
    """A cluster from `--hosts user@a:port,b`. Raises UsageError as `hosts_of_flag` does."""
    return Cluster(hosts_of_flag(flag))


def find_cluster(flag: str, named: str) -> Cluster:
    """The hosts of `--hosts` with their settings from cluster.toml; without the flag, all hosts of the file.

    `named` is the file of --cluster; if it is empty, the file is this folder's cluster.toml, if that exists. Raises
    UsageError for an error in the flag or the file, if both are missing, and if the user does not allow what the file
    asks for.
    """
    path = Path(named) if named else Path("cluster.toml")
    if not named and not path.is_file():
        return from_flag(flag)
    if not named and (real := wishes.path_outside(path, path.parent)):
        raise UsageError(
            f"cluster.toml is a link out of this folder, to {real}", f"if you mean that file: {FLAG.cluster} {real}"
        )
    cluster = consent.read_once(path, _allowed)
    return replace(cluster, hosts=_picked(hosts_of_flag(flag), cluster.hosts)) if flag.strip() else cluster


def from_file(path: Path) -> Cluster:
    """Everything in a cluster.toml, without asking whether the user allows it (`_allowed` does that).

    Raises UsageError for its first error, with the path of the key. An error that only keeps a run from starting
    becomes the cluster's `fault`.
    """
    top = toml.read(path)
    number = top.get("format", CLUSTER_FILE, values.whole(1, 1_000_000), "the version number of the file's format")
    refuse_newer(str(path), number, CLUSTER_FILE)
    listed = _listed(top) if top.lists_texts("hosts") else _in_tables(top)
    job_table = top.table("job")
    role_tables, data_tables = top.tables("role"), top.tables("data")
    top.done()
    if not listed:
        top.refuse("no hosts", toml.SHAPE)
    hosts = {host.name: host for host in listed}
    job = replace(_job(job_table), roles=tuple(role.of_table(table).text for table in role_tables))
    job = replace(job, data=tuple(map(_data, data_tables)))
    through = (_through(host, hosts) for host in hosts.values())
    own = tuple(replace(host, gpus=job.gpus) if host.gpus == "auto" else host for host in through)
    return Cluster(own, job, _fault(job_table, job))


def _allowed(path: Path) -> Cluster:
    cluster = from_file(path)
    cluster = replace(cluster, job=_resolved(cluster.job, path.parent))
    wanted = wishes.wishes(cluster.hosts, cluster.job, path)
    consent.require(path.parent, wanted, str(path), wishes.free_settings(cluster.hosts, cluster.job))
    consent.require(path.parent, list(map(wishes.variables, cluster.job.env_file)), str(path))
    return cluster


def _resolved(job: Job, here: Path) -> Job:
    """The job with its links resolved: Muster uses the path that the user sees, even if a link changes meanwhile."""
    folder = Path(wishes.path_outside(job.folder, here) or job.folder) if job.folder else None
    secrets = tuple(
        secret._replace(file=Path(os.path.realpath(secret.file)), shown=True) if secret.file else secret
        for secret in job.secrets
    )
    # A missing file is left out here; a start is refused for it.
    env_file = tuple(Path(os.path.realpath(file)) for file in job.env_file if os.path.isfile(file))
    dockerfile = Path(os.path.realpath(job.dockerfile)) if job.dockerfile else None
    data = tuple(each._replace(source=Path(os.path.realpath(each.source))) for each in job.data)
    return replace(job, folder=folder, secrets=secrets, env_file=env_file, dockerfile=dockerfile, data=data)


def _picked(wanted: Sequence[Host], known: Sequence[Host]) -> tuple[Host, ...]:
    """The hosts of --hosts with their settings from the file; the flag's user and port override the file's.

    A run's record has hosts by their destination, so a host is also found in the file by address and port.
    """
    by_name = {host.name: host for host in known}
    by_place = {(host.address, host.port): host for host in known}
    picked = []
    for host in wanted:
        known_host = by_name.get(host.name) or by_place.get((host.address, host.port), host)
        picked.append(replace(known_host, user=host.user or known_host.user, port=host.port or known_host.port))
    return tuple(picked)


def _through(host: Host, hosts: Mapping[str, Host]) -> Host:
    """The host; a gateway that is the name of a host in the file is replaced by that host's destination."""
    if host.gateway is None:
        return host
    hops = [hosts[hop].destination if hop in hosts else hop for hop in host.gateway.split(",")]
    return replace(host, gateway=",".join(hops))


def _listed(top: Table) -> Sequence[Host]:
    """The hosts of a list: `hosts = ["a", "me@b:2222"]`."""
    items = top.items("hosts", values.destination, 'a host: "user@gpu-a:2222"; user and port may be left out')
    hosts, twin = named_hosts(items)
    if twin:
        top.refuse(f"{twin} is listed twice", "name each host once", "hosts")
    return hosts


def _in_tables(top: Table) -> Sequence[Host]:
    hosts = {}
    for table in top.tables("hosts"):
        host = _host(table)
        if host.name in hosts:
            table.refuse(f"{host.name} is already the name of a host above", "give each host a name of its own", "name")
        hosts[host.name] = host
    return tuple(hosts.values())


def _host(table: Table) -> Host:
    name = table.get("name", "", values.matching(values.NAME), "a name of letters, digits, dots, dashes (at most 63)")
    host = Host(
        name=name,
        address=table.get("address", name, values.host, "a host name or an IP"),
        port=table.get("port", None, values.whole(1, 65535), "a port number"),
        user=table.get("user", None, values.user, "a user name"),
        gateway=table.get("gateway", None, values.gateway, 'a jump host: "user@a:port", several with commas'),
        interface=table.get("interface", None, values.word, "the name of a network interface"),
        **{KEYS[option].name: _value(table, KEYS[option], _DEFAULT_HOST) for option in _HOST_OPTIONS},
    )
    table.done()
    if not name:
        table.refuse("no name", 'a host needs a name, which may be its address: name = "a"')
    return host


def _job(table: Table) -> Job:
    job = Job(**{key.name: _value(table, key, _DEFAULT_JOB) for key in KEYS.values()})
    table.done()
    return job


def _fault(table: Table, job: Job) -> UsageError | None:
    """Why no run may start with the job of this table: keys that exclude each other, or a path that does not exist."""
    given = keys_of(job)
    try:
        for name, rule in rules_of("deploy"):
            if name in given and (others := given.intersection(rule.when.split("|"))):
                table.refuse(f"cannot be used with {min(others)}: {rule.why}", rule.hint or "keep one of them", name)
        if job.roles and (job.script or job.args):
            table.refuse("the file has roles too", "a script is a role of its own: keep either the script or the roles")
        for key in KEYS.values():
            _refuse_missing(table, key, getattr(job, key.name))
    except UsageError as fault:
        return fault
    return None


def _data(table: Table) -> Data:
    """Read the data of a table [[data]]."""
    source = table.get("folder", None, values.path_from(table.path.parent), "the path of a folder")
    target = table.get("target", None, values.data_target, values.DATA)
    digest = table.get("digest", "", values.matching(values.DIGEST), "a digest of 64 lowercase hexadecimal digits")
    table.done()
    if not source or not target:
        table.refuse("a folder needs a target, and a target needs a folder", 'folder = "corpus" and target = "/data"')
    return Data(source, target, digest)


def _value(table: Table, key: Key, usual: Host | Job) -> Any:
    """The table's value for an option's key, or the default in `usual`."""
    read = key.read(table.path.parent) if key.relative else key.read
    default = getattr(usual, key.name)
    if key.named:
        return _variables(table.table(key.name), key)
    if isinstance(default, tuple) and not key.alone:
        return table.items(key.name, read, key.wanted, key.secret)
    return table.get(key.name, default, _one_or_several(read) if key.alone else read, key.wanted)


def _one_or_several(read: Callable[[Any], Any]) -> Callable[[Any], tuple[Any, ...] | None]:
    def check(value: Any) -> tuple[Any, ...] | None:
        items = tuple(map(read, value if isinstance(value, list) else [value]))
        return items if all(items) else None

    return check


def _variables(table: Table, key: Key) -> dict[str, str]:
    for name in table.names:
        if not values.VARIABLE.fullmatch(name):
            table.refuse("not the name of a variable", "letters, digits and _, not starting with a digit", name)
    return {name: table.get(name, "", key.read, key.wanted) for name in table.names}


def _refuse_missing(table: Table, key: Key, value: Path | tuple[Path, ...] | None) -> None:
    """Raise UsageError if a path is not the existing file or folder that its key requires."""
    is_there = {"file": os.path.isfile, "folder": os.path.isdir}
    for path in (value if isinstance(value, tuple) else [value]) if key.exists and value else ():
        if not is_there[key.exists](path):
            table.refuse(f"there is no {key.exists} {path}", "", key.name)
