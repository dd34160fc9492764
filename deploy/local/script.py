"""The user's script on this machine: its arguments, its folder, and the Python that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from ..core.errors import USAGE, DeployError, UsageError
from ..job import values as values
from ..run.files import folders, own_files
from ..send.folder import folder_look
from ..send.folder.content import WORKSPACE
from ..send.folder.credentials import SendChoice
from ..send.image import commands

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_LOOK_S = 20.0


def refuse_arguments(arguments: Sequence[str], here: Path) -> None:
    """Raise UsageError for options that Muster's own trainer would refuse on each node.

    Paths in the options are relative to `here`. Without options there is nothing to check.
    """
    if not arguments:
        return
    command, variables = [sys.executable, *commands.options(arguments)], folders.with_muster(os.environ)
    try:
        asked = subprocess.run(
            command, cwd=here, env=variables, capture_output=True, text=True, timeout=_LOOK_S, check=False
        )
    except subprocess.TimeoutExpired:  # on a slow disk; then each node checks them itself
        return
    if asked.returncode == USAGE:
        message, _, hint = asked.stdout.rstrip("\n").partition("\n")
        raise UsageError(message, hint)


def copy_to_run(folder: Path, run_dir: Path, choice: SendChoice) -> None:
    """Copy what a deploy would send into the run folder, from where the agent uses it (contract.md)."""
    # Unpack next to the folder of all runs, where no container can create a link, and then move the whole folder. If
    # the runs are on their own disk, unpack in their folder: a container of `muster up` sees only its own run.
    runs = run_dir.parent
    try:
        beside = runs.parent if runs.parent.stat().st_dev == runs.stat().st_dev else runs
        look = folder_look.look_at(folder, choice)  # before the stage exists, which may be in that folder
        with TemporaryDirectory(prefix=".muster-sent-", dir=beside) as stage:
            # A kill leaves this folder behind. Git then ignores it, and nothing in it is sent.
            Path(stage, ".gitignore").write_text("*\n")
            folder_look.copy_folder(folder, Path(stage) / "sent" / WORKSPACE.removeprefix("/"), look.entries)
            own_files.replace_folder(run_dir, sent_folder(run_dir).parent.name, Path(stage) / "sent")
    except OSError as fault:
        raise DeployError(f"{run_dir}: {folder} cannot be copied there: {fault.strerror}", "free some space") from fault


def sent_folder(run_dir: Path) -> Path:
    """Where `copy_to_run` puts the folder."""
    return run_dir / "sent" / WORKSPACE.removeprefix("/")


def own_caches(shell: Mapping[str, str], home: Path) -> dict[str, str]:
    """Variables that give a script, whose home is the run's, this user's folders for libraries' downloads."""
    cache = Path(shell.get("XDG_CACHE_HOME") or home / ".cache")
    places = {
        "HF_HOME": cache / "huggingface",
        "TORCH_HOME": cache / "torch",
        "TRITON_CACHE_DIR": home / ".triton" / "cache",
        "PIP_CACHE_DIR": cache / "pip",
        "UV_CACHE_DIR": cache / "uv",
    }
    return {name: str(place) for name, place in places.items() if name not in shell}


def python() -> str:
    """The Python for scripts without containers: the active environment's if it has torch, else Muster's own."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(os.environ.get(name, "/none")).absolute() / "bin" / "python"
        if active.is_file() and has_torch(str(active)):
            return str(active)
    return sys.executable


def has_torch(python: str) -> bool:
    """Whether that Python has torch; also true if it does not answer in time: its own start then shows it."""
    # In another folder: Python imports from the current folder, which may be somebody else's.
    try:
        return not subprocess.run(
            [python, "-c", _HAS_TORCH], cwd="/", capture_output=True, timeout=_LOOK_S, check=False
        ).returncode
    except subprocess.TimeoutExpired:
        return True
    except OSError:
        return False
