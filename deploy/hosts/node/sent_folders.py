"""Mounts the folders that a push sent into a run's containers: read-only, in addition to the image. Pure."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from ...job.values import Mount
from ...run import environment
from ...send.folder.content import CODE, WORKSPACE, HostFolder
from ...send.image.push import Pushed
from ...send.image.push_plan import PushPlan
from . import container
from .container import NodeContainer

# For each place in a container: the label with the digest of its content, and the variable that the agent reads. The
# labels keep a later push and `clean` from changing or removing it (send/folder/scripts/folders_function.sh).
LABELS = {WORKSPACE: "muster.folder", CODE: "muster.code"}
# Data has a separate label for each digest.
DATA_LABEL = "muster.data."
_DIGESTS = {WORKSPACE: environment.SENT_DIGEST, CODE: environment.CODE_DIGEST}


# What a push did on one host, or would do.
PushOutcome = Pushed | PushPlan


def mounts(folders: Sequence[HostFolder]) -> tuple[str, ...]:
    """The `docker run` options that mount these folders."""
    made = (container.mount_option(Mount(folder.place, folder.target, True)) for folder in folders)
    return tuple(word for mount in made for word in ("--mount", mount))


def digest_of(outcomes: Mapping[str, PushOutcome]) -> str:
    """The digest of the user's folder, which is the same on all hosts; empty if no folder was sent."""
    folders = (folder for each in outcomes.values() for folder in each.folders)
    return next((folder.digest for folder in folders if folder.target == WORKSPACE), "")


def data_of(outcomes: Mapping[str, PushOutcome]) -> dict[str, str]:
    """The digests of the data, by their places in containers."""
    return {folder.target: folder.digest for each in outcomes.values() for folder in each.folders if folder.is_data}


def words_of(labels: Mapping[str, str]) -> set[str]:
    """The digests of the sent folders and data that a container with these labels uses."""
    data = {name.removeprefix(DATA_LABEL) for name in labels if name.startswith(DATA_LABEL)}
    return data | {labels[name] for name in LABELS.values() if name in labels}


def mount_folders(nodes: Sequence[NodeContainer], outcomes: Mapping[str, PushOutcome]) -> tuple[NodeContainer, ...]:
    """The containers with their folders. `outcomes`: what a push did or would do, by host."""
    return tuple(_with(node, outcomes[node.host].folders) for node in nodes)


def _mounted(folders: Sequence[HostFolder]) -> tuple[str, ...]:
    return (*mounts(folders), *(word for folder in folders for word in ("--label", _label(folder))))


def _label(folder: HostFolder) -> str:
    if folder.is_data:
        return f"{DATA_LABEL}{folder.digest}={folder.target}"
    return f"{LABELS[folder.target]}={folder.digest}"


def _with(node: NodeContainer, folders: Sequence[HostFolder]) -> NodeContainer:
    """A node and its witness with these folders. Its network end runs as root, so it sees none of the user's files."""
    targets = {folder.target for folder in folders}
    options = (*_mounted(folders), *(("--workdir", WORKSPACE) if WORKSPACE in targets else ()))
    agent = _mounted([folder for folder in folders if folder.target == CODE])
    variables = {**node.environment, **{_DIGESTS[each.target]: each.digest for each in folders if not each.is_data}}
    if data := [folder.target for folder in folders if folder.is_data]:
        variables[environment.DATA] = os.pathsep.join(data)
    if CODE in targets:
        variables = environment.finding_muster(variables, CODE)
    return replace(
        node,
        docker=node.docker.with_options(*options),
        environment=variables,
        witness=_with(node.witness, folders) if node.witness else None,
        overlay=node.overlay.with_options(*agent) if node.overlay else None,
    )
