"""Run the probe on real hosts over SSH, in the image that training will use, with its container's options.

If a host lacks the image, or its engine does not answer, the host's own Python runs the probe, and the verdict says so.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from ...causes import docker_faults
from ...core import fields, printable
from ...core.errors import DeployError
from ...core.results import Results
from ...core.text import last_line
from ...door.session import Session, on_all
from ...engine import reach
from ...engine.compose import LABEL, ONCE
from ...host import commands as host_commands
from ...host.reached import ReachedHosts
from ...preflight.probe import text
from ...send.image import commands
from ...send.image.push_plan import HostImage, parse_image
from ..node import container
from ..node.docker_run import python_of

# Reading torch from a cold disk takes up to a minute.
_IMPORT_S, _MOST_WORDS = 60.0, 300


class SessionProbe:
    """One probe over one SSH session. `argv` starts Python on the host; its input is `first`, then `program`."""

    def __init__(self, session: Session, argv: Sequence[str], program: bytes, first: bytes = b"") -> None:
        self.name = session.name
        self._stream = session.stream([*argv, *text.command(len(program))])
        self._stream.write(first + program)

    def send(self, question: dict[str, Any]) -> None:
        """Send a question. Raises DeployError if the probe has ended."""
        self._stream.write(json.dumps(question).encode() + b"\n")

    def read(self, wait_s: float) -> dict[str, Any]:
        """The next answer. Raises DeployError if none comes in time or the probe ends, BadAnswer for an invalid one."""
        return fields.json_object(self._stream.read_line(wait_s), "the probe's answer")

    def finish(self) -> None:
        """End the probe's input; it may still send output."""
        self._stream.end_input()

    def close(self) -> None:
        """End the probe by closing its input."""
        self._stream.close()


def images(sessions: Sequence[Session], names: Sequence[str]) -> dict[str, dict[str, HostImage | str]]:
    """By host: the first image of these names that it has, and, for each name before it, why that image is missing.

    The reason is empty if the engine simply does not have the image.
    """

    def ask(session: Session) -> dict[str, HostImage | str]:
        return held_images(session.run(commands.first_image(names), check=False).out)

    return dict(on_all(sessions, ask).values)


def held_images(answer: str) -> dict[str, HostImage | str]:
    """Read the answer to `commands.first_image`. Raises BadAnswer."""
    held = {}
    for section in re.split(r"^name ", answer, flags=re.MULTILINE)[1:]:
        name, _, words = section.partition("\n")
        shown = next((line for line in words.split("\n") if line.startswith("{")), "")
        held[name] = parse_image(shown) if shown else words.strip() if docker_faults.engine_failed(words) else ""
    return held


def probes(
    hosts: ReachedHosts,
    image: str,
    python: str,
) -> Results[SessionProbe]:
    """Start the probe on each host: in the image, or with the host's own `python` if `image` is empty."""
    sent = text.text()

    def start(session: Session) -> SessionProbe:
        host = session.host
        if not image or host.name not in hosts.facts:
            return SessionProbe(session, [python], sent)
        # Set what a deploy would set (container.meeting_of): the predictions must be about that interface.
        name = host.interface
        named = {"GLOO_SOCKET_IFNAME": name, "NCCL_SOCKET_IFNAME": f"={name}"} if name else {}
        seen = container.visible_gpus(host, hosts.facts[host.name])
        variables = host_commands.variable_lines({**named, **hosts.job.environment, **host.environment, **seen})
        return SessionProbe(session, in_container(hosts, session, image), sent, host_commands.base64_line(variables))

    return on_all(hosts.sessions, start)


def in_container(hosts: ReachedHosts, session: Session, image: str, end: Sequence[str] = ()) -> Sequence[str]:
    """A command that runs the image's Python as training will run it, in a container that is removed when it ends.

    `end`: the end of the `docker run`, from the image on, to run another program instead. Standard input: the variables
    in the form of scripts/with_variables.sh, then the input for Python.
    """
    options = container.container_options(session.host, hosts.facts[session.name], hosts.job)
    variables = ("--env-file", host_commands.VARIABLES_ASIDE)
    return host_commands.script("with-variables", *ONCE, *options, *variables, *(end or python_of(image)))


def without_torch(hosts: ReachedHosts, image: str) -> dict[str, str]:
    """The last line of a failed `import torch` in each host's own image. Other failures are not reported."""

    def ask(session: Session) -> str:
        argv = [*in_container(hosts, session, image), "-c", "import torch"]
        done = session.run(argv, input=host_commands.base64_line(b""), timeout_s=_IMPORT_S, check=False)
        failed = done.code and "Traceback (most recent call last)" in done.err
        return printable.one_line(last_line(done.err)[:_MOST_WORDS]) if failed else ""

    return {host: words for host, words in on_all(hosts.sessions, ask).values.items() if words}


def has_unstarted(session: Session) -> bool:
    """Whether the engine has a container of a preflight that was made and not started."""
    with suppress(DeployError):  # the host may be lost by now; its probe has reported that
        return any(each.status == "created" for each in reach.on_host(session).containers(LABEL))
    return False


def close(probes: Results[SessionProbe]) -> None:
    """End all probes."""
    for probe in probes.values.values():
        with suppress(DeployError):
            probe.close()
