"""The folder of this machine's runs, the user's name, where the package `muster` is, and paths in messages."""

from __future__ import annotations

import hashlib
import os
import pwd
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import NoReturn

from ...core.errors import DeployError, UsageError
from ...job import consent
from ...job.consent import Wish
from ...job.wishes import path_outside
from .locks import cache_folder as cache_folder
from .locks import own_folder

CHECKOUT = Path(__file__).resolve().parents[3]
# In a wheel, `deploy` is inside the package `muster`; in a checkout it is next to it.
INSTALLED = (CHECKOUT / "__init__.py").is_file()
PACKAGE = CHECKOUT if INSTALLED else CHECKOUT / "muster"
# Runs are in the current folder; for a command typed anywhere in a checkout, in the checkout's top folder.
IN_CHECKOUT = (CHECKOUT / "fabfile.py").is_file() and Path.cwd().is_relative_to(CHECKOUT)
RUNS = (CHECKOUT if IN_CHECKOUT else Path.cwd()) / "runs"


def user_name() -> str:
    """This user's name, or the user's number if the machine has no name for it."""
    with suppress(KeyError):
        return pwd.getpwuid(os.geteuid()).pw_name
    return str(os.geteuid())


def with_muster(environment: Mapping[str, str]) -> dict[str, str]:
    """`environment`, changed so that a Python started with -P finds the package `muster`, and no other name of Muster.

    The top folder of a checkout and a folder of installed libraries have more names, which the user's own code may use.
    """
    others = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path not in ("", str(CHECKOUT))]
    return {**environment, "PYTHONPATH": os.pathsep.join([str(_only_muster()), *others])}


def _only_muster() -> Path:
    """A folder with a link to the package and nothing else. It is never removed: nodes may outlive this command.

    It is not in a run folder, where scripts may write: Python imports code from it as this user. Raises DeployError.
    """
    place = own_folder(cache_folder() / "path" / hashlib.sha256(str(PACKAGE).encode()).hexdigest()[:16])
    link, new = place / PACKAGE.name, place.parent / f".{place.name}-{os.getpid()}"
    if not link.is_symlink() or link.readlink() != PACKAGE:
        try:
            new.unlink(missing_ok=True)
            new.symlink_to(PACKAGE)
            new.replace(link)
        except OSError as fault:
            raise DeployError(f"{link}: cannot be made: {fault.strerror}", "set XDG_CACHE_HOME") from fault
    return place


def ask_link(runs: Path) -> None:
    """Ask before runs are written through a link that may have come with a cloned folder. Raises UsageError."""
    if runs.is_symlink() and (real := path_outside(runs, runs.parent)):
        consent.require(
            runs.parent, [Wish("runs", f"are written to {real}, to which the link {runs.name} points")], runs.name
        )


def refuse_no_run(or_else: str = "") -> NoReturn:
    """Raise UsageError because this folder has no run of this user; `or_else`: what else the user can do."""
    raise UsageError(f"no run that you started is in {RUNS}", f"go to the folder where it was started{or_else}")


def runs_of(folder: str) -> Path:
    """The folder `runs`, given a project's folder, the folder `runs` itself, or a run in it.

    Raises UsageError if the given folder is missing.
    """
    path = Path(os.path.expanduser(folder)).absolute()
    if not os.path.isdir(path):
        raise UsageError(f"{folder}: there is no such folder", "muster board")
    beside = [] if (path / "runs").is_dir() else [path.parent]  # a project may be in a folder that is called `runs`
    return next((each for each in (path, *beside) if each.name == "runs"), path / "runs")


def display_path(path: Path) -> str:
    """A path as the user would type it: relative if it is below the current folder."""
    with suppress(ValueError):
        return str(path.relative_to(Path.cwd()))
    return str(path)
