"""`fab fetch --state FILE`: one file of a checkpoint that several hosts have written in parts. The library does it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path

from ..core.errors import UsageError
from ..run import folders
from . import script


def refuse(file: str) -> None:
    """Raise UsageError, before a long fetch, if `gather` cannot write the file."""
    if Path(file).exists():
        raise UsageError(f"--state {file}: exists", "name another file")
    if not Path(file).parent.is_dir():
        raise UsageError(f"--state {file}: no such folder: {Path(file).parent}", "name a folder that is there")
    if not script.has_torch(script.python()):
        raise UsageError("--state: this machine has no torch", "pip install torch, or fetch on a machine that has it")


def gather(run_dir: Path, file: str) -> int:
    """Write the newest usable checkpoint of the run folder into `file`; returns the exit code."""
    with tempfile.TemporaryDirectory(prefix="muster-") as packages:
        folders.link_agent_packages(Path(packages))
        command = [script.python(), "-P", "-m", "muster.checkpoint", str(run_dir.resolve()), file]
        return subprocess.run(command, env={**os.environ, "PYTHONPATH": packages}, check=False).returncode
