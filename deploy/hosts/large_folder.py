"""A large folder in the containers of a run: read-only, in the place where the image would have a small one. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Protocol

from ..image.model import WORKSPACE
from ..job.values import Mount
from ..run import environment
from . import container
from .container import NodeContainer


class SentFolder(Protocol):
    """What a push did on one host, or would do: `folder` is empty if the image has the folder."""

    @property
    def folder(self) -> str:
        """Where the host has the folder."""

    @property
    def digest(self) -> str:
        """What names its content."""


def mount(sent: SentFolder) -> tuple[str, ...]:
    """The options of `docker run` for it; none if the image has the folder."""
    return ("--mount", container.mount_option(Mount(sent.folder, WORKSPACE, True))) if sent.folder else ()


def give(nodes: Sequence[NodeContainer], sent: Mapping[str, SentFolder]) -> tuple[NodeContainer, ...]:
    """The containers with their folder. `sent`: by host."""
    return tuple(_with(node, sent[node.host]) for node in nodes)


def _with(node: NodeContainer, sent: SentFolder) -> NodeContainer:
    if not sent.folder:
        return node
    # The label keeps a later push from changing or removing it (image/scripts/folders_function.sh).
    options = ("--label", f"muster.folder={sent.digest}", *mount(sent), "--workdir", WORKSPACE)
    variables = {**node.environment, environment.SENT_DIGEST: sent.digest}
    return replace(node, docker=node.docker.with_options(*options), environment=variables)
