"""A project's packages on this machine: an environment for the script's Python, or a volume for its containers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from ..core.errors import DeployError, UsageError
from ..core.results import Results
from ..job.options import FLAG
from ..report import packages as packages_shown
from ..report.console import Console
from ..run.environment import Packages
from ..run.files import locks
from ..run.files.folders import cache_folder, user_name
from ..send.folder.content import WORKSPACE
from ..send.packages import commands
from ..send.packages.local_runner import LocalRunner
from ..send.packages.places import HERE, DockerPlace, Place, ProcessPlace
from ..send.packages.requirements import Requirements
from . import machine, script

IMAGE = "muster-trainer:cpu"
_INSTALL_S = 3600.0


def in_processes(needs: Requirements, run_dir: Path, console: Console) -> Packages | None:
    """Install what a script needs beyond its Python's own packages; None if this Python has all of it.

    Started without Muster, the script would have only this Python's packages. So if uv cannot install any, and the user
    did not name the file, the script runs with those.
    """
    folder = locks.own_folder(cache_folder() / "environments")
    place = ProcessPlace(HERE, script.python(), folder, script.sent_folder(run_dir))
    try:
        target = _bring(place, needs, folder, console, script.sent_folder(run_dir))
    except DeployError as fault:
        if isinstance(fault, UsageError) or not needs.by_itself:
            raise
        has = (
            f"the script uses the packages of {script.python()} ({FLAG.requirements} {needs.path} insists on the file)"
        )
        console.warn(f"packages: nothing is installed, {has}: {fault.message}")
        console.hint(fault.hint)
        return None
    return Packages(target, commands.variables(os.environ, {}, target)) if target else None


def in_containers(needs: Requirements, run_dir: Path, console: Console) -> Packages | None:
    """Install what a script needs, for containers of the image, which must exist."""
    source = ("--mount", f"type=bind,source={script.sent_folder(run_dir).resolve()},target={WORKSPACE},readonly")
    place = DockerPlace(HERE, LocalRunner(), IMAGE, user_name(), machine.container_user(), mounts=source)
    folder = locks.own_folder(cache_folder() / "packages")
    volume = _bring(place, needs, folder, console, script.sent_folder(run_dir))
    return Packages(volume, commands.variables(place.look().variables, {})) if volume else None


def _bring(place: Place, needs: Requirements, folder: Path, console: Console, source: Path) -> str:
    """Install, and return the environment's name. A second `muster up` waits until the first has installed."""
    with locks.wait_for(folder / ".lock", _INSTALL_S, console.note):
        return packages_shown.install_packages([place], needs, console, source, each=_each).environments.get(HERE, "")


def _each(places: Sequence[Place], work: Callable[[Place], Any]) -> Results[Any]:
    outcomes = {}
    for place in places:
        try:
            outcomes[place.name] = work(place)
        except DeployError as fault:
            outcomes[place.name] = fault
    return Results(outcomes)
