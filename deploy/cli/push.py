"""`push`: an image and a folder onto real hosts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from fabric import Connection

from ..core.errors import DONE
from ..core.program import FAB
from ..hosts import push as hosts_push
from ..hosts.options import Options
from ..report.console import Console
from .command import HOSTS, INCLUDE, JSON, LIMIT, REQUIREMENTS, command, split
from .exit import end


@command(
    example=f"{FAB} push --hosts gpu-a,gpu-b --folder examples",
    codes={DONE: "every host has the image and the folder"},
    iterable=["secret", "include", "env_file"],
    help={
        **HOSTS,
        **JSON,
        "secret": "what must never be sent: as for deploy; repeatable (default: none)",
        "env-file": "a file such as .env, whose values must never be sent; repeatable (default: none)",
        "include": INCLUDE,
        "folder-limit": LIMIT,
        "folder": "the folder to send (default: cluster.toml's, or none)",
        "image": "the image to send (default: muster-trainer:cpu, or :gpu where there are GPUs)",
        "dockerfile": "build the image here first, from this file and the folder it lies in (default: none)",
        "requirements": REQUIREMENTS,
        "dry-run": "say what would be sent, and send nothing",
    },
)
def push(
    context: Connection,
    hosts: str = "",
    cluster: str = "",
    folder: str = "",
    image: str = "",
    dockerfile: str = "",
    secret: Sequence[str] | None = None,
    env_file: Sequence[str] | None = None,
    include: Sequence[str] | None = None,
    folder_limit: str = "",
    requirements: str = "",
    dry_run: bool = False,
    json: bool = False,
) -> None:
    """Send an image and a folder to real hosts. Starts nothing."""
    options = Options(hosts, cluster, folder=folder, image=image, dry_run=dry_run, dockerfile=dockerfile)
    options = replace(options, secrets=tuple(secret or ()), include=split(include), folder_limit=folder_limit)
    options = replace(options, env_files=tuple(env_file or ()))
    options = replace(options, requirements=requirements)
    console = Console(json)
    end(context, console, lambda: hosts_push.push(options, console))
