"""Images of the local Docker engine: inspect, save and build them, and Docker's own rules for `.dockerignore`."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import DeployError
from ..core.fields import document

_LOOK_S = 20.0
_CHUNK = 1 << 20


def inspect(name: str) -> dict[str, Any] | None:
    """The local engine's `inspect` of an image; None if there is no such image, or no engine. Raises BadAnswer."""
    command = ["docker", "image", "inspect", name]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    images = document(done.stdout or "[]", "docker image inspect") if done.returncode == 0 else []
    return dict(images[0]) if images else None


def pull(name: str, platform: str) -> bool:
    """Fetch an image from its registry into the local engine; whether that was possible."""
    more = ["--platform", platform] if platform else []
    try:
        return (
            subprocess.run(["docker", "pull", "--quiet", *more, name], capture_output=True, check=False).returncode == 0
        )
    except OSError:
        return False


def save(name: str) -> Iterator[bytes]:
    """A local image as the archive of `docker save`, in chunks. Raises DeployError if the archive is incomplete."""
    with subprocess.Popen(["docker", "save", name], stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            while chunk := process.stdout.read(_CHUNK):
                yield chunk
            stderr = process.stderr.read().decode(errors="replace").strip()
            if process.wait():
                raise DeployError(f"cannot read {name} from the local Docker engine: {stderr or 'no message'}")
        finally:
            process.kill()  # does nothing if it has ended


def build_command(dockerfile: Path, tag: str, platform: str) -> list[str]:
    """The command that builds `dockerfile`, with its folder as the context, and names the image `tag`.

    platform: of the hosts (linux/amd64), if it is not this engine's own.
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
    """The platform that the local engine builds for, as `linux/arm64`; empty if it does not say."""
    command = ["docker", "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_LOOK_S, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def build(command: Sequence[str], dockerfile: Path) -> None:
    """Build an image here, with a command of `build_command`. Raises DeployError with the builder's last lines."""
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise DeployError(f"cannot build {dockerfile}: no docker here", "install Docker, or name an image") from fault
    if done.returncode:
        words = "\n".join(done.stderr.strip().splitlines()[-8:])
        raise DeployError(
            f"cannot build {dockerfile}: {words or 'no message from the builder'}", "correct it and try again"
        )
