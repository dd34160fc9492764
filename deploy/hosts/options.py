"""Read and check the options of the commands for real hosts: text in; words, paths and variables out.

Flags override cluster.toml. Nothing here touches a host. Secrets' values are read here and never shown.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ..config import cluster_file, inventory, keep, script, script_file, secrets
from ..config import values as values
from ..config.inventory import Cluster, Host, Job
from ..config.script import ScriptCommand
from ..config.values import Mount
from ..core.errors import UsageError
from ..core.near import near_file, near_path
from ..core.program import FAB
from ..image.credentials import MOST, Choice

# A comma separates variables only if another NAME= follows: a value may hold commas.
_NEXT = re.compile(r",(?=[A-Za-z_][A-Za-z0-9_]*=)")
# The variables that the plan sets for each node (docs/contract.md); a user may set any other.
_OURS = re.compile(r"MUSTER_(?!STYLE\b)\w+|PET_(NNODES|NPROC_PER_NODE|NODE_RANK|RDZV_\w+|LOCAL_ADDR)")
_SECRET_LEAST = 8  # letters; a shorter value can be in a command line by chance


@dataclass(frozen=True)
class Options:
    """What the user asked for, as text; empty means not given."""

    hosts: str = ""
    cluster: str = ""
    run: str = ""
    script: str = ""
    arguments: str = ""
    folder: str = ""
    image: str = ""
    detach: bool = False
    dry_run: bool = False
    force: bool = False
    environment: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    mounts: tuple[str, ...] = ()
    keep: tuple[str, ...] = ()
    processes: str = ""
    resume: str = ""
    dockerfile: str = ""
    include: tuple[str, ...] = ()
    separate: bool = False
    rank: str = ""
    no_observe: bool = False
    restarts: str = ""
    gpus: str = ""
    wait: bool = False
    folder_limit: str = ""
    env_files: tuple[str, ...] = ()
    secret_files: tuple[str, ...] = ()
    no_cache: bool = False
    requirements: str = ""
    max_hours: str = ""
    on_end: str = ""
    wait_lost: str = ""
    min_nodes: str = ""
    spare: str = ""
    arbiter: str = ""
    overlay: bool = False

    def load(self) -> Cluster:
        """The hosts and their job: flags override the file, which is --cluster or this folder's cluster.toml.

        Raises UsageError for the first fault in either.
        """
        cluster = self._cluster()
        for name in frozenset(cluster.job.environment).union(*(host.environment for host in cluster.hosts)):
            _refuse_ours(name, "cluster.toml: environment:")
        for variables in (cluster.job.environment, *(host.environment for host in cluster.hosts)):
            _refuse_named_like_secrets(variables, "cluster.toml: environment:")
        mounts = tuple(_mount(text) for text in self.mounts)
        job, targets = self._job(cluster.job), {mount.target for mount in mounts}
        gpus = _gpus(self.gpus) if self.gpus else None
        hosts = tuple(
            replace(host, mounts=_without(targets, host.mounts), gpus=_own_gpus(host, job, gpus))
            for host in cluster.hosts
        )
        job = replace(job, mounts=(*_without(targets, job.mounts), *mounts))
        keep.refuse_nested(
            job.keep, {mount.target for mounts in (job.mounts, *(host.mounts for host in hosts)) for mount in mounts}
        )
        return Cluster(hosts, job)

    def filled(self) -> Options:
        """These options with what to run, and how to follow it, from cluster.toml where no flag says it.

        --script, --args and --resume each say what to run. Raises UsageError for an error in the file.
        """
        job = cluster_file.load(self.hosts, self.cluster).job
        named = bool(self.script or self.arguments or self.resume)
        script = self.script or ("" if named else job.script)
        restarts = "" if job.restarts is None or not (script or self.resume) else str(job.restarts)
        return replace(
            self,
            script=script,
            arguments=self.arguments or ("" if named else job.args),
            folder=self.folder or (str(job.folder) if job.folder else ""),
            restarts=self.restarts or restarts,
            rank=self.rank or job.rank,
            no_observe=self.no_observe or not job.observe,
        )

    def plain(self) -> tuple[Options, ScriptCommand]:
        """These options with the script as torchrun takes it, and all that its command says. Raises UsageError."""
        command = script.read(self.script, Path(self.folder or "."))
        ranks, restarts = command.asked_ranks(self.processes), command.asked_restarts(self.restarts)
        return replace(self, script=shlex.join(command.words), processes=ranks, restarts=restarts), command

    def script_words(self) -> tuple[str, ...]:
        """The script and its arguments, of `plain` options."""
        return tuple(shlex.split(self.script))

    def trainer_arguments(self) -> tuple[str, ...]:
        """The words of --args. Raises UsageError as `script_words` does."""
        return _words("--args", self.arguments)

    def code(self, cluster: Cluster) -> Path | None:
        """The folder to send to the hosts. Raises UsageError if it does not hold the script."""
        words = self.script_words()
        folder = Path(self.folder) if self.folder else cluster.job.folder or (Path() if words else None)
        first = "-m" if words[:1] == ("-m",) else script_file.file_of(words)
        if folder and not os.path.isdir(folder):
            script_file.refuse_no_folder(self.folder or folder)
        if folder and first == "-m":
            _refuse_module(words[1] if len(words) > 1 else "", folder)
        elif folder and first:
            script_file.refuse_outside(first, folder)
            if not (folder / first).is_file():
                script_file.refuse_missing(first, folder)
            if len(cluster.hosts) > 1:
                script_file.refuse_alone(first, folder)
        return folder

    def _cluster(self) -> Cluster:
        """The hosts of --hosts or the file, then spares and arbiter: these may be among them or come in addition."""
        if not self.spare and not self.arbiter:
            return cluster_file.load(self.hosts, self.cluster)
        asked = [part.strip() for part in f"{self.spare},{self.arbiter}".split(",") if part.strip()]
        others = [part for part in self.hosts.split(",") if part.strip() and part.strip() not in asked]
        named = [host.name for host in inventory.from_flag(",".join(asked)).hosts]
        spares, arbiters = (named[:-1], named[-1:]) if self.arbiter else (named, [])
        if "," in self.arbiter:
            raise UsageError(f"--arbiter {self.arbiter}: one host is enough", f"--arbiter {asked[-1]}")
        cluster = cluster_file.load(",".join([*others, *asked]) if others else "", self.cluster)
        if lacking := sorted({*named} - {host.name for host in cluster.hosts}):
            option = "--arbiter" if lacking[0] in arbiters else "--spare"
            raise UsageError(f"{option} {lacking[0]}: the file has no such host", "name it there, or give --hosts too")
        hosts = sorted(cluster.hosts, key=lambda host: (host.name in arbiters, host.name in spares))
        return Cluster(tuple(hosts), replace(cluster.job, spares=tuple(spares), arbiter="".join(arbiters)))

    def _job(self, job: Job) -> Job:
        flags, lists = secrets.asked(self.secrets, self.env_files, self.secret_files)
        open_names = job.environment.keys() | environment_of(self).keys()
        hidden = secrets.combined((*job.env_files, *lists), job.secrets, flags, open_names, _refuse_ours)
        processes = job.processes if not self.processes else _processes(self.processes)
        separate, overlay = self.separate or job.separate, self.overlay or job.overlay
        dockerfile = Path(self.dockerfile) if self.dockerfile else job.dockerfile
        if self.dockerfile:
            _refuse_dockerfile(self.dockerfile, self.image)
        keep_paths = tuple(dict.fromkeys((*job.keep, *keep.asked(self.keep))))
        include = (*job.include, *(_inside(text) for text in self.include))
        return replace(
            job,
            secrets=hidden,
            processes=processes,
            dockerfile=dockerfile,
            include=include,
            requirements=self.requirements or job.requirements,
            keep=keep_paths,
            separate=separate,
            overlay=overlay,
            cache=job.cache and not self.no_cache,
            folder_limit=folder_limit(self.folder_limit) or job.folder_limit,
            wait_lost_s=_wait_lost(self.wait_lost) or job.wait_lost_s,
            min_nodes=self.min_nodes or job.min_nodes,
        )


def _refuse_dockerfile(text: str, image: str) -> None:
    """Raise UsageError for a --dockerfile that is no file, or stands beside --image."""
    if image:
        raise UsageError(f"--dockerfile {text}: --image is given too", "leave out --image, or leave out --dockerfile")
    if not os.path.isfile(text):
        meant = near_path(text, ("Dockerfile",))
        hint = f"--dockerfile {shlex.quote(meant)}" if meant else "leave out --dockerfile: Muster has an image"
        raise UsageError(f"--dockerfile {text}: {'a folder' if os.path.isdir(text) else 'no such file'}", hint)


def environment_of(options: Options) -> dict[str, str]:
    """The variables of --env, each `NAME=VALUE`. Raises UsageError for other text and for names that the plan sets."""
    environment = {}
    for text in (part for given in options.environment for part in _NEXT.split(given)):
        name, equals, value = text.partition("=")
        if not equals or not values.VARIABLE.fullmatch(name):
            raise UsageError(f"--env {name if equals else text}: not NAME=VALUE", "--env LOG_LEVEL=debug --env A=1,B=2")
        _refuse_ours(name, "--env")
        if values.scalar(value) is None:
            raise UsageError(f"--env {name}: a variable cannot have several lines", "put it in a file")
        environment[name] = value
    return environment


def secrets_of(cluster: Cluster, due: Set[str] | None = None) -> dict[str, str]:
    """The values of the job's secrets, or of those in `due`.

    Raises UsageError, which names the secret and never its value, for a secret without a value here, and for a due one
    that the user did not name: a host may ask for any variable.
    """
    if missing := sorted((due or set()) - {secret.name for secret in cluster.job.secrets}):
        raise UsageError(
            f"secret {missing[0]}: this command does not name it",
            f"with {missing[0]} in this shell: --secret {missing[0]}",
        )
    wanted = [secret for secret in cluster.job.secrets if due is None or secret.name in due]
    for secret in wanted:
        _refuse_ours(secret.name, "secret")
    return secrets.read(wanted)


def folder_limit(text: str) -> int | None:
    """--folder-limit in bytes; None if it is not given. Raises UsageError for other text."""
    limit = values.size(text) if text else None
    if text and limit is None:
        raise UsageError(f"--folder-limit {text}: not a size", "--folder-limit 4g")
    return limit


def choice_of(cluster: Cluster) -> Choice:
    """Which files of the folder may be sent. A secret that has no value here cannot be in a file here either."""
    job, known = cluster.job, dict[str, str]()
    for secret in job.secrets:
        with suppress(UsageError):
            known |= secrets_of(cluster, {secret.name})
    sources = {secret.name: secret.file for secret in job.secrets if secret.file}
    return Choice(frozenset(job.include), sources, secrets.telling(job.secrets, known), job.folder_limit or MOST)


def refuse_open_secrets(options: Options, known: Mapping[str, str]) -> None:
    """Raise UsageError if a command or a variable, which everybody on a host can read, holds a secret's value.

    We look for the job's secrets, as secrets.telling gives them, and for every variable of this shell whose name sounds
    like a secret's (the shell may have expanded `$HF_TOKEN`).
    """
    suspects = {name: value for name, value in os.environ.items() if secrets.SOUNDS.search(name)}
    public = {
        "--script": options.script,
        "--run": options.run,
        "--args": options.arguments,
        "--on-end": options.on_end,
        "--env": "\n".join(options.environment),
    }
    _refuse_named_like_secrets(environment_of(options), "--env")
    for name, value in {**suspects, **known}.items():
        for option, text in public.items():
            if len(value) >= _SECRET_LEAST and value in text:
                raise UsageError(
                    f"{option} contains the value of {name}, and everybody on the hosts could read it",
                    f"leave it out and add --secret {name}: the script then has it in its environment",
                )


def _refuse_named_like_secrets(variables: Mapping[str, str], where: str) -> None:
    """Raise UsageError for a variable that is called a token, a password or a key, and has a value as long as one."""
    for name, value in variables.items():
        if secrets.NAMES.search(name) and len(value) >= _SECRET_LEAST:
            raise UsageError(
                f"{where} {name}: everybody who may use a host's engine could read it",
                f'export {name}=...; then: --secret {name} (cluster.toml: secrets = ["{name}"])',
            )


def slug(text: str) -> str:
    """The text as a valid image name: `My Folder` becomes `my-folder`."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower()).strip("-")
    # An image name may have at most 255 letters.
    return "-".join(filter(None, name.split("-")))[:100].strip("-") or "run"


def tag_of(base: str, folder: Path | None) -> str:
    """The name of a run's image on the hosts."""
    return f"muster-{slug(folder.resolve().name if folder else base)}:latest"


def _refuse_ours(name: str, where: str) -> None:
    if _OURS.fullmatch(name):
        raise UsageError(
            f"{where} {name}: Muster sets this variable for each node", f"to see it: {FAB} deploy --dry-run"
        )


def _inside(text: str) -> str:
    if path := values.inside(text):
        return path
    raise UsageError(
        f"--include {text}: not a path in the folder",
        "leave it out, or copy it into the folder",
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


def _mount(text: str) -> Mount:
    if mount := values.mount(text):
        return mount
    raise UsageError(f"--mount {text}: not {inventory.MOUNT}", "--mount /data:/data:ro, and --mount again for another")


def _without(targets: Set[str], mounts: Sequence[Mount]) -> tuple[Mount, ...]:
    return tuple(mount for mount in mounts if mount.target not in targets)


def _processes(text: str) -> Literal["auto"] | int:
    count = values.processes(int(text) if re.fullmatch(r"[0-9]{1,4}", text) else text)
    if count is None:
        raise UsageError(
            f"--nproc {text}: neither auto nor a number from 1 to 1024",
            "--nproc auto",
        )
    return count


def _wait_lost(text: str) -> float | None:
    seconds = values.wait(text) if text else None
    if text and seconds is None:
        raise UsageError(f"--wait-lost {text}: not a time with its unit", "--wait-lost 90s (or 10m, 1h)")
    return seconds


def _gpus(text: str) -> values.Gpus:
    asked = values.gpus_flag(text)
    if asked is None:
        raise UsageError(
            f"--gpus {text}: neither auto, how many, nor which", "--gpus 2 (any two), or --gpus 0,3 (these two)"
        )
    return asked


def _words(option: str, text: str) -> tuple[str, ...]:
    try:
        if not values.is_text(text):
            raise ValueError("it has a letter that no command line can hold")
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise UsageError(f"{option} {text}: {fault}", "quote the words as in a shell") from fault
