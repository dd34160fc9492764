"""Read what was typed, and cluster.toml beneath it: text in; hosts, words, paths and variables out.

What is typed goes before the file. Nothing here touches a host.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ..config import cluster_file, inventory, keep, script, script_file, secrets
from ..config import values as values
from ..config.inventory import Cluster, Host, Job
from ..config.script import ScriptCommand
from ..config.values import Mount
from ..core.errors import UsageError
from ..core.near import near_file, near_path
from ..core.program import COMMAND, FAB
from .options import Options, flag_of, row_of
from .secrets import SECRET_LEAST, refuse_named_like_secrets, refuse_ours

# A comma separates variables only if another NAME= follows: a value may hold commas.
_NEXT = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")


def load_cluster(options: Options) -> Cluster:
    """The hosts and their job: flags override the file, which is --cluster or this folder's cluster.toml.

    Raises UsageError for the first fault in either.
    """
    cluster = _cluster_of(options)
    for name in frozenset(cluster.job.environment).union(*(host.environment for host in cluster.hosts)):
        refuse_ours(name, "cluster.toml: environment:")
    for variables in (cluster.job.environment, *(host.environment for host in cluster.hosts)):
        refuse_named_like_secrets(variables, "cluster.toml: environment:")
    mounts = value_of(options, "mount")
    job, targets = _job_of(options, cluster.job), {mount.target for mount in mounts}
    gpus = value_of(options, "gpus")
    hosts = tuple(
        replace(host, mounts=_without(targets, host.mounts), gpus=_own_gpus(host, job, gpus)) for host in cluster.hosts
    )
    job = replace(job, mounts=(*_without(targets, job.mounts), *mounts))
    keep.refuse_nested(
        job.keep, {mount.target for mounts in (job.mounts, *(host.mounts for host in hosts)) for mount in mounts}
    )
    return Cluster(hosts, job)


def fill_from_file(options: Options) -> Options:
    """The options with what to run, and how to follow it, from cluster.toml where no flag says it.

    --script, --args and --resume each say what to run. Raises UsageError for an error in the file.
    """
    job = cluster_file.load(options.hosts, options.cluster).job
    named = bool(options.script or options.args or options.resume)
    script = options.script or ("" if named else job.script)
    restarts = "" if job.restarts is None or not (script or options.resume) else str(job.restarts)
    return replace(
        options,
        script=script,
        args=options.args or ("" if named else job.args),
        folder=options.folder or (str(job.folder) if job.folder else ""),
        restarts=options.restarts or restarts,
        rank=options.rank or job.rank,
        no_observe=options.no_observe or not job.observe,
    )


def read_command(options: Options) -> tuple[Options, ScriptCommand]:
    """The options with the script as torchrun takes it, and all that its command says. Raises UsageError."""
    command = script.read(options.script, Path(options.folder or "."))
    ranks, restarts = command.asked_ranks(options.nproc), command.asked_restarts(options.restarts)
    return replace(options, script=shlex.join(command.words), nproc=ranks, restarts=restarts), command


def script_words(options: Options) -> tuple[str, ...]:
    """The script and its arguments, of options that `read_command` gave."""
    return tuple(shlex.split(options.script))


def trainer_words(options: Options) -> tuple[str, ...]:
    """The words of --args. Raises UsageError as `script_words` does."""
    return _words("--args", options.args)


def folder_to_send(options: Options, cluster: Cluster) -> Path | None:
    """The folder to send to the hosts. Raises UsageError if it does not hold the script."""
    words = script_words(options)
    folder = Path(options.folder) if options.folder else cluster.job.folder or (Path() if words else None)
    first = "-m" if words[:1] == ("-m",) else script_file.file_of(words)
    if folder and not os.path.isdir(folder):
        script_file.refuse_no_folder(options.folder or folder)
    if folder and first == "-m":
        _refuse_module(words[1] if len(words) > 1 else "", folder)
    elif folder and first:
        script_file.refuse_outside(first, folder)
        if not (folder / first).is_file():
            script_file.refuse_missing(first, folder)
        if len(cluster.hosts) > 1:
            script_file.refuse_alone(first, folder)
    return folder


def _cluster_of(options: Options) -> Cluster:
    """The hosts of --hosts or the file, then spares and arbiter: these may be among them or come in addition."""
    if not options.spare and not options.arbiter:
        return cluster_file.load(options.hosts, options.cluster)
    asked = [part.strip() for part in f"{options.spare},{options.arbiter}".split(",") if part.strip()]
    others = [part for part in options.hosts.split(",") if part.strip() and part.strip() not in asked]
    named = [host.name for host in inventory.from_flag(",".join(asked)).hosts]
    spares, arbiters = (named[:-1], named[-1:]) if options.arbiter else (named, [])
    if "," in options.arbiter:
        raise UsageError(f"--arbiter {options.arbiter}: one host is enough", f"--arbiter {asked[-1]}")
    cluster = cluster_file.load(",".join([*others, *asked]) if others else "", options.cluster)
    if lacking := sorted({*named} - {host.name for host in cluster.hosts}):
        option = "--arbiter" if lacking[0] in arbiters else "--spare"
        raise UsageError(f"{option} {lacking[0]}: the file has no such host", "name it there, or give --hosts too")
    hosts = sorted(cluster.hosts, key=lambda host: (host.name in arbiters, host.name in spares))
    return Cluster(tuple(hosts), replace(cluster.job, spares=tuple(spares), arbiter="".join(arbiters)))


def _job_of(options: Options, job: Job) -> Job:
    flags, lists = secrets.asked(options.secret, options.env_file, options.secret_file)
    open_names = job.environment.keys() | environment_of(options).keys()
    hidden = secrets.combined((*job.env_files, *lists), job.secrets, flags, open_names, refuse_ours)
    separate, overlay = options.separate or job.separate, options.overlay or job.overlay
    dockerfile = Path(options.dockerfile) if options.dockerfile else job.dockerfile
    if options.dockerfile:
        _refuse_dockerfile(options.dockerfile, options.image)
    keep_paths = tuple(dict.fromkeys((*job.keep, *keep.asked(options.keep))))
    return replace(
        job,
        secrets=hidden,
        processes=value_of(options, "nproc") or job.processes,
        dockerfile=dockerfile,
        include=(*job.include, *value_of(options, "include")),
        requirements=options.requirements or job.requirements,
        keep=keep_paths,
        separate=separate,
        overlay=overlay,
        cache=job.cache and not options.no_cache,
        folder_limit=value_of(options, "folder_limit") or job.folder_limit,
        wait_lost_s=value_of(options, "wait_lost") or job.wait_lost_s,
        min_nodes=options.min_nodes or job.min_nodes,
    )


def _refuse_dockerfile(text: str, image: str) -> None:
    """Raise UsageError for a --dockerfile that is no file, or stands beside --image."""
    if image:
        raise UsageError(f"--dockerfile {text}: --image is given too", "leave out --image, or leave out --dockerfile")
    if not os.path.isfile(text):
        meant = near_path(text, ("Dockerfile",))
        hint = f"--dockerfile {shlex.quote(meant)}" if meant else "leave out --dockerfile: Muster has an image"
        raise UsageError(f"--dockerfile {text}: {'a folder' if os.path.isdir(text) else 'no such file'}", hint)


def value_of(options: Options, name: str) -> Any:
    """What the program uses of an option: one value, None where it is not given; several of one that has several.

    Raises UsageError for a text that is refused.
    """
    given = getattr(options, name)
    if isinstance(given, tuple):
        return tuple(read_text(name, text) for text in given)
    return read_text(name, given) if given else None


def read_text(name: str, text: str) -> Any:
    """What the program uses of one text of an option. Raises UsageError for a text that is refused."""
    row = row_of(next(each for each in fields(Options) if each.name == name))
    value = row.read(text) if row.read else text
    if value is None:
        raise UsageError(f"{flag_of(name)} {text}: {row.refusal}", row.hint.format(command=f"{FAB} {COMMAND}"))
    return value


def environment_of(options: Options) -> dict[str, str]:
    """The variables of --env, each `NAME=VALUE`. Raises UsageError for other text and for names that the plan sets."""
    environment = {}
    for text in (part for given in options.env for part in _NEXT.split(given)):
        name, equals, value = text.partition("=")
        if not equals or not values.VARIABLE.fullmatch(name):
            raise UsageError(f"--env {name if equals else text}: not NAME=VALUE", "--env LOG_LEVEL=debug --env A=1,B=2")
        refuse_ours(name, "--env")
        if values.scalar(value) is None:
            raise UsageError(f"--env {name}: a variable cannot have several lines", "put it in a file")
        environment[name] = value
    return environment


def refuse_open_secrets(options: Options, known: Mapping[str, str]) -> None:
    """Raise UsageError if a command or a variable, which everybody on a host can read, holds a secret's value.

    We look for the job's secrets, as secrets.telling gives them, and for every variable of this shell whose name sounds
    like a secret's (the shell may have expanded `$HF_TOKEN`).
    """
    suspects = {name: value for name, value in os.environ.items() if secrets.SOUNDS.search(name)}
    public = {
        "--script": options.script,
        "--run": options.run,
        "--args": options.args,
        "--on-end": options.on_end,
        "--env": "\n".join(options.env),
    }
    refuse_named_like_secrets(environment_of(options), "--env")
    for name, value in {**suspects, **known}.items():
        for option, text in public.items():
            if len(value) >= SECRET_LEAST and value in text:
                raise UsageError(
                    f"{option} contains the value of {name}, and everybody on the hosts could read it",
                    f"leave it out and add --secret {name}: the script then has it in its environment",
                )


def _refuse_module(name: str, folder: Path) -> None:
    """Raise UsageError for a module that cannot exist. A package that is not in the folder may be in the image."""
    first = name.split(".")[0]
    # In src/ lies a package that is installed; another folder of its name there is something else.
    is_in_src = os.path.isfile(folder / "src" / first / "__init__.py")
    root = folder / "src" if is_in_src and not os.path.isdir(folder / first) else folder
    path, top = str(root / name.replace(".", "/")), root / first
    exists = os.path.isfile(f"{path}.py") or os.path.isfile(f"{path}/__main__.py")
    valid = all(part.isidentifier() for part in name.split("."))
    if not valid or (not exists and (os.path.isdir(top) or os.path.isfile(f"{top}.py"))):
        if not name:
            raise UsageError("-m: no module is named", "-m pkg.train is the file pkg/train.py of the folder")
        meant = near_file(root, f"{name.replace('.', '/')}.py", ".py").removesuffix(".py").replace("/", ".")
        hint = "-m pkg.train is the file pkg/train.py there"
        missing = f"-m {name}: no such module in {root.resolve()}"
        raise UsageError(missing, f"did you mean -m {meant}? {hint}" if meant else hint)


def _own_gpus(host: Host, job: Job, asked: values.Gpus | None) -> values.Gpus:
    if host.name == job.arbiter:
        return 0
    return host.gpus if asked is None else asked


def _without(targets: Set[str], mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    return tuple(mount for mount in mounts if mount.target not in targets)


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        if not values.is_text(text):
            raise ValueError("it has a letter that no command line can hold")
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise UsageError(f"{option} {text}: {fault}", "quote the words as in a shell") from fault


def refuse_on_slurm(options: Options) -> None:
    """Raise UsageError for an option that a run on Slurm does not have, with what does the same there."""
    for each in fields(Options):
        if getattr(options, each.name) and row_of(each).slurm:
            raise UsageError(f"{flag_of(each.name)}: not with --slurm", row_of(each).slurm)


def refuse_without_slurm(options: Options) -> None:
    """Raise UsageError for an option that only a run on Slurm has."""
    for each in fields(Options):
        if getattr(options, each.name) and row_of(each).slurm_alone:
            flag = flag_of(each.name)
            raise UsageError(f"{flag}: it is for a run on Slurm, with --slurm in place of --hosts", "leave it out")
