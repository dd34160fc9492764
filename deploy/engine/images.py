"""Images of the local Docker engine: inspect, pull, save and build them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..causes.docker_faults import DockerFault
from ..core.errors import DeployError, EngineLost
from .reach import on_this_machine


def inspect(name: str) -> dict[str, Any] | None:
    """What the local engine reports about an image; None without such an image or an engine. Raises BadAnswer."""
    try:
        return on_this_machine().image(name)
    except (DockerFault, EngineLost):
        return None


def pull(name: str, platform: str) -> bool:
    """Fetch an image from its registry into the local engine. Returns whether that worked."""
    more = ["--platform", platform] if platform else []
    try:
        return (
            subprocess.run(["docker", "pull", "--quiet", *more, name], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


def save(name: str) -> Iterator[bytes]:
    """A local image as an archive in the format of `docker save`, in pieces. Raises DeployError if it is incomplete."""
    try:
        yield from on_this_machine().save(name)
    except DockerFault as fault:
        raise DeployError(f"cannot read {name} from the local Docker engine: {fault.words}") from fault


def build_command(dockerfile: Path, tag: str, platform: str) -> list[str]:
    """The command that builds `dockerfile`, with its folder as the context, as the image `tag`.

    platform: the hosts' platform (linux/amd64); it is left out if it is this engine's own.
    """
    options = ["--platform", platform] if platform and platform != own_platform() else []
    return [
        "docker",
        "build",
        "--quiet",
        *options,
        "--file",
        str(dockerfile),
        "--tag",
        tag,
        str(dockerfile.resolve().parent),
    ]


def own_platform() -> str:
    """The platform that the local engine builds for, such as `linux/arm64`; empty if the engine does not answer."""
    try:
        return on_this_machine().platform()
    except DeployError:
        return ""


def build(command: Sequence[str], dockerfile: Path) -> None:
    """Build an image here with the command from `build_command`. Raises DeployError with the builder's last lines."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise DeployError(f"cannot build {dockerfile}: no docker here", "install Docker, or choose an image") from fault
    if done.returncode:
        words = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise DeployError(
            f"cannot build {dockerfile}: {words or 'no message from the builder'}",
            "correct the Dockerfile and try again",
        )
