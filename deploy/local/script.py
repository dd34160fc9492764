"""A script of the user's on this machine: the words of it, the folder it comes from, and the Python that runs it."""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory

from ..config.script import PER_NODE
from ..core.errors import DeployError, UsageError
from ..image import code_layer
from ..image.model import WORKSPACE
from ..report.console import Console
from ..run import own_files

_HAS_TORCH = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torch') is None)"
_LOOK_S = 20.0


def check(folder: str, script: tuple[str, ...], console: Console) -> Path:
    """The folder that goes along. Says which credentials in it do not. Raises UsageError where it lacks the script."""
    path = Path(folder or ".")
    if not path.is_dir():
        raise UsageError(f"--folder {folder}: no such folder", "name the folder that holds your script")
    shell = script[1] if script[0] == PER_NODE and script[1].endswith(".sh") else ""
    first = shell or ("" if script[0].startswith("-") else script[0])
    if first and not (path / first).is_file():
        raise UsageError(f"--script {first}: no such file in {path.resolve()}", "give its path relative to --folder")
    if left_out := code_layer.check(path, first):
        console.note(code_layer.describe(left_out))
        console.data({"kind": "not sent", "paths": [credential.path for credential in left_out]})
    return path


def bring(folder: Path, run_dir: Path) -> None:
    """Copy what a deploy would send into the run folder. The agent takes it from there (docs/contract.md)."""
    # Unpacked beside the folder of all runs, where no container can plant a link, and then moved in whole. Where the
    # runs are on a disk of their own, in their folder: a container of `fab up` sees that of its own run alone.
    runs = run_dir.parent
    try:
        beside = runs.parent if runs.parent.stat().st_dev == runs.stat().st_dev else runs
        with TemporaryDirectory(prefix=".muster-sent-", dir=beside) as stage:
            with tarfile.open(fileobj=BytesIO(code_layer.pack(folder))) as tar:
                tar.extractall(f"{stage}/sent", filter="fully_trusted")
            own_files.replace_folder(run_dir, sent(run_dir).parent.name, Path(stage) / "sent")
    except OSError as fault:
        raise DeployError(f"{run_dir}: {folder} cannot be copied there: {fault.strerror}", "free some space") from fault


def sent(run_dir: Path) -> Path:
    """Where `bring` puts the folder."""
    return run_dir / "sent" / WORKSPACE.removeprefix("/")


def python() -> str:
    """The Python that runs the script without containers: that of the active environment if it has torch, else ours."""
    for name in ("VIRTUAL_ENV", "CONDA_PREFIX"):
        active = Path(os.environ.get(name, "/none")) / "bin" / "python"
        if active.is_file() and _has_torch(str(active)):
            return str(active)
    return sys.executable


def _has_torch(python: str) -> bool:
    with suppress(OSError, subprocess.TimeoutExpired):
        return not subprocess.run(
            [python, "-c", _HAS_TORCH], capture_output=True, timeout=_LOOK_S, check=False
        ).returncode
    return False
