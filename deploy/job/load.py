"""Combine the options that the user typed with cluster.toml, check each of them, and find spares and arbiter.

A typed option overrides the file. together.py refuses options that exclude each other. A plain variable that looks
like a secret is refused. Nothing here connects to a host.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Collection, Sequence, Set
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..core.errors import UsageError
from ..core.names import check_run_id
from ..core.program import COMMAND
from ..core.suggest import near_match, refuse_no_path
from . import script, script_file, secrets
from . import values as values
from .cluster import Cluster, find_cluster
from .inventory import Host, hosts_of_flag
from .options import FLAG, KEYS, ROWS, Job, Options, flag_of
from .roles import all_roles
from .script import ScriptCommand
from .secrets import refuse_named_like_secrets, refuse_ours
from .values import Data, Mount

# Typed values of these options are combined with the file in their own way: see `job_of` and `load_cluster`.
_COMBINED_APART = frozenset({"env", "secret", "env_file", "mount"})
# Options about the folder that is sent.
_FOLDER_OPTIONS = ("requirements", "include", "folder_limit")
# A comma separates variables only if another NAME= follows: a value may hold commas.
_NEXT = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")


def known_cluster(options: Options) -> Cluster:
    """The hosts and their job from the file, for a command that starts nothing. Raises UsageError.

    Faults that only keep a run from starting (`refuse_unfit`) do not matter here: the run exists already.
    """
    return find_cluster(options.hosts, options.cluster)


def load_cluster(options: Options) -> Cluster:
    """The hosts and the job to start: flags override the file, which is --cluster or this folder's cluster.toml.

    Raises UsageError for the first fault in the flags or the file.
    """
    cluster = _cluster_of(options)
    refuse_unfit(cluster)
    mounts = value_of(options, "mount")
    job, targets = job_of(options, cluster.job), {mount.target for mount in mounts}
    gpus = value_of(options, "gpus")
    variables = environment_of(options)
    hosts = tuple(
        replace(
            host,
            mounts=_without(targets, host.mounts),
            gpus=_own_gpus(host, job, gpus),
            visible=values.visible_gpus({**job.environment, **host.environment, **variables}),
        )
        for host in cluster.hosts
    )
    data = value_of(options, "data")
    data = (*(each for each in job.data if each.target not in {typed.target for typed in data}), *data)
    job = replace(job, mounts=(*_without(targets, job.mounts), *mounts), data=data)
    cluster = Cluster(hosts, job)
    for each in (job.mounts, *(host.mounts for host in hosts)):
        refuse_duplicate_targets(each)
    mounted = {mount.target for mount in cluster.mounts}
    refuse_nested_data(job.data, {*job.keep, *mounted})
    refuse_nested_keeps(job.keep, mounted)
    return cluster


def refuse_unfit(cluster: Cluster) -> None:
    """Raise UsageError for a setting in the file with which no run may start."""
    if cluster.fault:
        raise cluster.fault
    for path in cluster.job.env_file:
        secrets.read_env_file(path)
    for variables in (cluster.job.environment, *(host.environment for host in cluster.hosts)):
        for name in variables:
            refuse_ours(name, "cluster.toml: environment:")
        refuse_named_like_secrets(variables, "cluster.toml: environment:")


def fill_from_file(options: Options) -> Options:
    """The options, filled up with those of cluster.toml that count as typed (`Key.typed`); flags override the file.

    --script, --each, --args, --role and --resume each say what to run: the file's script and roles do not count then.
    Raises UsageError for an error in the file.
    """
    job = _job_of_file(options)
    if not _says_what_runs(options):
        options = replace(options, role=job.roles)
    if _says_what_runs(options):
        keeps = options.script or options.each or options.resume or options.role
        job = replace(job, script="", args="", restarts=job.restarts if keeps else "")
    elif not job.script:
        job = replace(job, restarts="")
    filled: dict[str, Any] = {}
    for name, key in KEYS.items():
        if key.typed and not getattr(options, name):
            value = getattr(job, key.name)
            filled[name] = not value if key.negates else str(value or "")
    return replace(options, **filled)


def _job_of_file(options: Options) -> Job:
    """The job to start, from cluster.toml. Raises UsageError."""
    cluster = known_cluster(options)
    if cluster.fault:
        raise cluster.fault
    return cluster.job


def _says_what_runs(options: Options) -> bool:
    return bool(options.script or options.each or options.args or options.resume or options.role)


def read_command(options: Options, typed: Options | None = None) -> tuple[Options, ScriptCommand]:
    """The options with the script in torchrun's form, and what else the script's command says. Raises UsageError.

    `typed`: the options without those of cluster.toml, over which they win: `--nproc 2` over the file's script, and
    the script's `--max-restarts 1` over the file's `restarts`.
    """
    command = script.read(options.script, Path(options.folder or "."))
    own = command
    if typed and not typed.script:
        own = replace(own, processes=None if typed.nproc else own.processes)
        own = replace(own, restarts=None if typed.restarts else own.restarts)
    elif typed and own.restarts is not None:
        options = replace(options, restarts=typed.restarts)
    ranks, restarts = own.asked_ranks(options.nproc), own.asked_restarts(options.restarts)
    return replace(options, script=shlex.join(command.words), nproc=ranks, restarts=restarts), own


def with_roles_of_file(options: Options) -> Options:
    """The options with the roles of cluster.toml, if no option says what to run. Raises UsageError."""
    has_file = options.cluster or Path("cluster.toml").is_file()
    if _says_what_runs(options) or not has_file:
        return options
    return replace(options, role=_job_of_file(options).roles)


def read_what_runs(options: Options, demo: bool = False) -> Options:
    """The options with --each turned into a script. Raises UsageError if nothing is to run, unless `demo`."""
    asked = script.once_a_node(options.each, options.script)
    if options.role and not options.args:
        texts, asked = all_roles.with_script(options.role, asked)
        options = replace(options, role=texts)
    if not (asked or options.args or options.resume or demo):
        if options.hosts:
            hosts_of_flag(options.hosts)  # with an empty variable before it, the script is taken as a host
        script_file.refuse_no_script(options.folder)
    return replace(options, script=asked, each="")


def script_words(options: Options) -> tuple[str, ...]:
    """The script and its arguments, from options that `read_command` returned."""
    return tuple(shlex.split(options.script))


def trainer_words(options: Options) -> tuple[str, ...]:
    """The words of --args. Raises UsageError."""
    return script.split_words(FLAG.args, options.args)


def folder_to_send(options: Options, cluster: Cluster) -> Path | None:
    """The folder to send to the hosts. Raises UsageError if the script is not in it."""
    words = script_words(options)
    folder = Path(options.folder) if options.folder else cluster.job.folder or (Path() if words else None)
    first = "-m" if words[:1] == ("-m",) else script_file.file_of(words)
    if folder is None and (alone := [name for name in _FOLDER_OPTIONS if getattr(options, name)]):
        raise UsageError(f"{flag_of(alone[0])}: no folder is sent", f"{FLAG.folder} . sends the current folder")
    if folder and not os.path.isdir(folder):
        instead = f"leave out {FLAG.folder}: Muster then sends the folder that you are in"
        refuse_no_path(FLAG.folder, options.folder or str(folder), instead, folder=True)
    if folder and folder.resolve() == Path("/"):
        where = os.path.dirname(first or "") or "PATH"
        raise UsageError("/: the whole machine would be sent", f"go to your project first: cd {shlex.quote(where)}")
    if folder and first == "-m":
        _refuse_module(words[1], folder)
    elif folder and first:
        script_file.refuse_outside(first, folder)
        script_file.refuse_folder(first, folder)
        if not os.path.isfile(folder / first):
            script_file.refuse_missing(first, folder)
        script_file.refuse_no_program(words, folder)
    return folder


def _cluster_of(options: Options) -> Cluster:
    """The hosts of --hosts or the file, with spares and the arbiter last.

    Spares and the arbiter may be in the list of hosts already, or are added to it.
    """
    if not options.spare and not options.arbiter:
        return find_cluster(options.hosts, options.cluster)
    listed = [part.strip() for part in options.hosts.split(",") if part.strip()]
    # In `--hosts a,me@b --spare b`, both `b` are one host, with the user and port from --hosts.
    by_address = {destination.host: part for part in listed if (destination := values.destination(part))}
    typed = (part.strip() for part in f"{options.spare},{options.arbiter}".split(","))
    asked = [by_address.get(part, part) for part in typed if part]
    others = [part for part in listed if part not in asked]
    named = [host.name for host in hosts_of_flag(",".join(asked))]
    spares, arbiters = (named[:-1], named[-1:]) if options.arbiter else (named, [])
    if "," in options.arbiter:
        raise UsageError(f"{FLAG.arbiter} {options.arbiter}: one host is enough", f"{FLAG.arbiter} {asked[-1]}")
    cluster = find_cluster(",".join([*others, *asked]) if others else "", options.cluster)
    if lacking := sorted({*named} - {host.name for host in cluster.hosts}):
        option = FLAG.arbiter if lacking[0] in arbiters else FLAG.spare
        raise UsageError(
            f"{option} {lacking[0]}: cluster.toml has no such host", f"add the host there, or give {FLAG.hosts} too"
        )
    hosts = sorted(cluster.hosts, key=lambda host: (host.name in arbiters, host.name in spares))
    job = replace(cluster.job, spares=tuple(spares), arbiter="".join(arbiters))
    return replace(cluster, hosts=tuple(hosts), job=job)


def job_of(options: Options, job: Job) -> Job:
    """The job of cluster.toml with the typed options.

    An option that takes several values gets both the file's and the typed ones; a typed value replaces any other.
    """
    if options.dockerfile:
        if not os.path.isfile(options.dockerfile):
            instead = f"leave out {FLAG.dockerfile}: Muster has an image of its own"
            refuse_no_path(FLAG.dockerfile, options.dockerfile, instead, ("Dockerfile",))
        job = replace(job, image=None)
    if options.image:
        job = replace(job, dockerfile=None)
    variables = environment_of(options).keys()
    hidden = secrets.combined(options, job, job.environment.keys() | variables)
    if twice := sorted(variables & {secret.name for secret in hidden}):
        raise UsageError(f"{FLAG.env} {twice[0]}: this variable is also given as a secret", "name it once")
    typed: dict[str, Any] = {}
    for name, key in KEYS.items():
        if key.typed or name in _COMBINED_APART or not getattr(options, name):
            continue
        value, before = value_of(options, name), getattr(job, key.name)
        if isinstance(getattr(options, name), tuple):
            value = tuple(dict.fromkeys((*before, *value)))
        typed[key.name] = not value if key.negates else value
    return replace(job, **typed, secrets=hidden)


def value_of(options: Options, name: str) -> Any:
    """The checked value of an option, or None if it is not given; a tuple for an option that may be repeated.

    Raises UsageError for a text that is not valid.
    """
    given = getattr(options, name)
    if isinstance(given, tuple):
        return tuple(read_text(name, text) for text in given)
    return read_text(name, given) if given else None


def read_text(name: str, text: str) -> Any:
    """The checked value of one text of an option. Raises UsageError for a text that is not valid."""
    row = ROWS[name]
    value = row.read(text) if row.read else text
    if value is None:
        raise UsageError(f"{flag_of(name)} {text}: {row.refusal}", row.hint.format(command=f"muster {COMMAND}"))
    return value


def gpus_of_each_node(options: Options) -> int:
    """How many GPUs Slurm gives each node; 0 leaves that to Slurm's own options.

    Raises UsageError for a list of GPUs, and if the user asks for none.
    """
    asked = value_of(options, "gpus")
    if asked in (None, "auto"):
        return 0
    if not isinstance(asked, int) or asked < 1:
        flag = FLAG.gpus
        raise UsageError(f"{flag} {options.gpus}: Slurm only takes a number of GPUs for each node", f"{flag} 8")
    return asked


def read_run(text: str) -> str:
    """The run's id in --run; empty text stays empty. Raises UsageError."""
    return check_run_id(FLAG.run, text)


def refuse_no_rank(text: str) -> None:
    """Raise UsageError if --rank is not the number of a rank; it may be empty."""
    if not re.fullmatch(r"[0-9]{0,9}", text):
        raise UsageError(f"{FLAG.rank} {text}: not a number", "ranks are numbered from 0")


def environment_of(options: Options) -> dict[str, str]:
    """The variables of --env, each `NAME=VALUE`.

    Raises UsageError for other text, for a variable that Muster sets, and for one that looks like a secret.
    """
    environment = {}
    for text in (part for given in options.env for part in _NEXT.split(given)):
        name, equals, value = text.partition("=")
        if not equals or not values.VARIABLE.fullmatch(name):
            raise UsageError(
                f"{FLAG.env} {name if equals else text}: not NAME=VALUE",
                f"{FLAG.env} LOG_LEVEL=debug {FLAG.env} A=1,B=2",
            )
        refuse_ours(name, FLAG.env)
        if values.scalar(value) is None:
            raise UsageError(f"{FLAG.env} {name}: a variable cannot have several lines", "put it in a file")
        environment[name] = value
    refuse_named_like_secrets(environment, FLAG.env)
    return environment


def refuse_duplicate_targets(mounts: tuple[Mount, ...]) -> tuple[Mount, ...]:
    """Return the mounts. Raises UsageError for two folders at one path of a container: only the last would count."""
    targets = [mount.target for mount in mounts]
    if twice := next((target for target in targets if targets.count(target) > 1), ""):
        raise UsageError(f"{FLAG.mount}: two folders have the same target, {twice}", "give each folder its own target")
    return mounts


def refuse_nested_keeps(keep: Sequence[str], targets: Collection[str]) -> None:
    """Raise UsageError for a kept path inside another kept path or a mount: its folder would not be Muster's own."""
    for path in keep:
        for other in (*(entry for entry in keep if entry != path), *targets):
            if f"{path}/".startswith(f"{other}/"):
                raise UsageError(
                    f"keep {path}: {other} is mounted too", "files in a mounted folder stay on the host anyway"
                )


def refuse_nested_data(data: Sequence[Data], targets: Collection[str]) -> None:
    """Raise UsageError for data whose path is inside another mounted path or contains one: data is read-only."""
    for each in data:
        for other in (*(other.target for other in data if other is not each), *targets):
            if f"{each.target}/".startswith(f"{other}/") or other.startswith(f"{each.target}/"):
                raise UsageError(f"data at {each.target}: {other} is mounted too", "give it a path of its own")


def refuse_no_folder(data: Sequence[Data]) -> None:
    """Raise UsageError for data whose folder does not exist."""
    for each in data:
        if not os.path.isdir(each.source):
            raise UsageError(f"data of {each.target}: there is no folder {each.source}", f"{FLAG.data} ~/corpus:/data")


def _refuse_module(name: str, folder: Path) -> None:
    """Raise UsageError for a module that cannot exist. A package missing in the folder may still be in the image."""
    first = name.split(".")[0]
    # A package in src/ is one that gets installed; a folder of that name at the top level goes before it.
    is_in_src = os.path.isfile(folder / "src" / first / "__init__.py")
    root = folder / "src" if is_in_src and not os.path.isdir(folder / first) else folder
    path, top = str(root / name.replace(".", "/")), root / first
    exists = os.path.isfile(f"{path}.py") or os.path.isfile(f"{path}/__main__.py")
    valid = all(part.isidentifier() for part in name.split("."))
    if not valid or (not exists and (os.path.isdir(top) or os.path.isfile(f"{top}.py"))):
        # -m runs a file, or a package with a __main__.py.
        files = [*Path(path).parent.glob("*.py"), *(main.parent for main in Path(path).parent.glob("*/__main__.py"))]
        package, dot, last = name.replace("/", ".").rpartition(".")
        meant = near_match(last, [file.stem for file in files if not file.stem.startswith("__")])
        hint = "-m pkg.train means the file pkg/train.py there"
        missing = f"-m {name}: no such module in {root.resolve()}"
        raise UsageError(missing, f"did you mean -m {package}{dot}{meant}? {hint}" if meant else hint)


def _own_gpus(host: Host, job: Job, asked: values.Gpus | None) -> values.Gpus:
    if host.name == job.arbiter:
        return 0
    return host.gpus if asked is None else asked


def _without(targets: Set[str], mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    return tuple(mount for mount in mounts if mount.target not in targets)
