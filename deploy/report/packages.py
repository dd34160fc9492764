"""Find and install a project's packages for a command, and print what was done: on hosts and on this machine alike."""

from __future__ import annotations

import posixpath
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from ..core import plain_file
from ..core.errors import DeployError
from ..core.printable import visible
from ..core.results import HostsFailed
from ..core.text import amount, listed, several
from ..job import consent, script_file
from ..job.options import FLAG
from ..send.folder import folder_look
from ..send.folder.folder_look import Look
from ..send.packages import install, project_file, requirements, settings
from ..send.packages.base import Base, Foreseeing, Foreseen
from ..send.packages.exchange import ToolFailed
from ..send.packages.install import Each, Installed
from ..send.packages.places import Place, ProcessPlace, on_all_places
from ..send.packages.requirements import Requirements
from ..send.packages.resolve import BESIDE_NONE
from ..send.packages.settings import Settings
from .console import Console


def read_requirements(
    wanted: str, folder: Path, look: Look, console: Console, words: Sequence[str] = ()
) -> Requirements | None:
    """Read the folder's requirements and print which they are. `wanted`: value of --requirements. Raises UsageError.

    `words`: the script and its arguments, if it is known what runs.
    """
    sent = folder_look.requirement_paths(look)
    path, by_itself = requirements.find(folder, wanted, sent)
    script = posixpath.normpath(script_file.file_of(words))
    if not wanted and requirements.has_block(folder, script, sent):
        how = f"{FLAG.requirements} {shlex.quote(script)} installs them{' instead' * bool(path)}"
        console.note(f"packages: those in the `# /// script` block of {script} are not installed: {how}")
    if not path:
        for name, way in requirements.not_read(folder, sent).items() if wanted != requirements.NO else ():
            console.note(f"packages: Muster cannot read {name} and installs none: {way}")
        return None
    if by_itself:
        console.note(f"packages: those in the folder's {path} ({FLAG.requirements} no leaves them out)")
    needs = replace(requirements.read(folder, path, sent), by_itself=by_itself)
    own = settings.of_user(far=False).indexes if needs.indexes else []
    consent.require(folder, needs.wishes(own), path)
    console.data({"kind": "requirements", "path": path, "found": by_itself})
    return needs


def install_packages(
    places: Sequence[Place],
    needs: Requirements,
    console: Console,
    source: Path,
    torch: str = "",
    resolved: Callable[[Base], object] = lambda base: None,
    foreseen: Foreseeing | None = None,
    each: Each = on_all_places,
) -> Installed:
    """Install the packages at every place and print what was done. `source`: the folder that is sent.

    `torch`: the build of torch to install with them (`cu126`), if the base has no torch. `resolved`, `foreseen`,
    `each`: as in install.PackageRequest.
    """
    here = all(isinstance(place, ProcessPlace) for place in places)
    own = settings.of_user(far=not here)
    left = (
        "packages: not used, because only this machine can reach it, although pip's settings name it: "
        f"{', '.join(own.left_out)}"
    )
    needs, own = _from(needs, own, torch)
    try:
        with console.waiting("packages") as say:
            about = (needs, own, lambda place, words: say(f"{place}: {words}"), source)
            installed = install.install_packages(places, install.PackageRequest(*about, resolved, foreseen, each))
    except DeployError as fault:
        if own.left_out:
            console.warn(left)
        faults = list(fault.faults.values()) if isinstance(fault, HostsFailed) else [fault]
        if here and needs.by_itself:  # the script starts without its packages, and a warning says why
            faults = []
        for words in dict.fromkeys(cause.words for cause in faults if isinstance(cause, ToolFailed) and cause.words):
            console.note(words)
        raise
    if own.left_out and installed.size:
        console.warn(left)
    console.note(f"packages: {needs.path}: {_words(installed, len(places))}")
    if words := other_python(source, installed.python):
        console.warn(words)
    if installed.empty:
        why = "its setup.py or pyproject.toml lists no packages to install"
        console.note(f"packages: {listed(installed.empty)} installed no code: {why}")
    if installed.lock.left_out:
        console.note(f"packages: left out, because the image has no CUDA: {listed(installed.lock.left_out)}")
    row = {"kind": "packages", "path": needs.path, "count": installed.lock.count, "bytes": installed.size}
    console.data({**row, "sent": installed.sent, "environments": dict(installed.environments)})
    return installed


def foresee(
    places: Sequence[Place], needs: Requirements, source: Path, torch: str, coming: Base | None
) -> Foreseen | None:
    """Resolve the packages early, without printing anything; see install.foresee."""
    needs, own = _from(needs, settings.of_user(), torch)
    return install.foresee(places, install.PackageRequest(needs, own, lambda *_: None, source), coming)


def _from(needs: Requirements, own: Settings, torch: str) -> tuple[Requirements, Settings]:
    """The requirements, without indexes and logins, and the settings with both.

    Without any index, the settings take the build `torch` from PyTorch's own index.
    """
    needs, own = requirements.take_out_logins(needs, own)
    return needs, own.with_torch(torch) if torch and not own.indexes else own


def other_python(folder: Path, python: str) -> str:
    """The warning if the folder's pyproject.toml asks for another Python than the one that runs its script."""
    with suppress(OSError, UnicodeDecodeError):
        text = plain_file.read(folder / "pyproject.toml", project_file.MOST, folder).decode()
        if asked := project_file.other_python(text, python):
            has = f"but the script's Python is {python}"
            return f"pyproject.toml: requires-python is {visible(asked)[:100]}, {has}: {install.OTHER_PYTHON}"
    return ""


def _words(installed: Installed, places: int) -> str:
    if not installed.environments:
        return "all of them are there already"
    torch = installed.lock.torch
    words = several(installed.lock.count, "package") + f" beside torch {torch}" * (torch != BESIDE_NONE)
    if not installed.size:
        return f"{words}, installed before"
    each = (
        f"{amount(installed.size)} on each of {places} hosts, the same files" if places > 1 else amount(installed.size)
    )
    return f"{words}, installed: {each}"
