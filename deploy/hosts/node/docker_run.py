"""The form of a `docker run` of a run: its parts and their order; container.py says what is in them. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from ...host import commands


@dataclass(frozen=True)
class DockerRun:
    """What makes a container. `command` are the arguments of the image's Python.

    `once`: its engine removes it when it ends. `lifetime`: options about its restarts, its end and its logs.
    `options`: all others, which a rehearsal of this container has too. `reads`: its variables come by standard input.
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
        """The command (host/commands.py says how it gets its variables)."""
        return (
            *("docker", "run", "--detach", *(("--rm",) if self.once else ()), "--pull", "never", "--name", self.name),
            *(word for name, value in self.labels.items() for word in ("--label", f"{name}={value}")),
            *self.lifetime,
            *self.options,
            *(("--env-file", commands.VARIABLES_FIRST) if self.reads else ()),
            *(*python_of(self.image), *self.command),
        )

    def with_options(self, *options: str) -> DockerRun:
        """It with these options at the end of its own."""
        return replace(self, options=(*self.options, *options))


def python_of(image: str) -> tuple[str, ...]:
    """The end of a `docker run` that starts the image's Python; its arguments follow."""
    return ("--entrypoint", "sh", image, "-c", commands.PYTHON, "sh")
