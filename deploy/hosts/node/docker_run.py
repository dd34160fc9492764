"""The `docker run` command of a run's containers: its parts and their order; container.py fills them in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...host import commands


@dataclass(frozen=True)
class DockerRun:
    """A `docker run` command. `command`: the arguments for the image's Python.

    `once`: the engine removes the container when it ends. `lifetime`: options for its restarts, its end and its logs.
    `options`: all others, which the container's rehearsal also gets. `reads`: it reads its variables from standard
    input.
    """

    name: str
    labels: Mapping[str, str] = field(hash=False)
    options: tuple[str, ...]
    image: str
    command: tuple[str, ...]
    lifetime: tuple[str, ...] = ()
    once: bool = False
    reads: bool = True

    @property
    def argv(self) -> tuple[str, ...]:
        """The whole command (host/commands.py says how it gets its variables)."""
        return (
            *("docker", "run", "--detach", *(("--rm",) if self.once else ()), "--pull", "never", "--name", self.name),
            *(word for name, value in self.labels.items() for word in ("--label", f"{name}={value}")),
            *self.lifetime,
            *self.options,
            *(("--env-file", commands.VARIABLES_FIRST) if self.reads else ()),
            *(*python_of(self.image), *self.command),
        )

    def with_options(self, *options: str) -> DockerRun:
        """A copy with these options after its own."""
        return replace(self, options=(*self.options, *options))


def python_of(image: str) -> tuple[str, ...]:
    """The end of a `docker run` that starts the image's Python; the arguments for Python follow."""
    return ("--entrypoint", "sh", image, "-c", commands.PYTHON, "sh")
