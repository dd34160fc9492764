"""`muster fetch --state FILE`: join the parts of a checkpoint that several hosts wrote into one file.

The library muster.checkpoint does the work.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable
from pathlib import Path

from ..core.errors import DeployError, UsageError
from ..core.facts import ended_how
from ..job.options import FLAG
from ..run.files import folders
from . import script


def refuse(file: str) -> None:
    """Raise UsageError, before a long fetch, if `gather` could not write the file."""
    if Path(file).exists():
        raise UsageError(f"{FLAG.state} {file}: this file exists already", "name another file")
    if not Path(file).parent.is_dir():
        raise UsageError(f"{FLAG.state} {file}: no such folder: {Path(file).parent}", "choose a folder that exists")
    if not script.has_torch(script.python()):
        raise UsageError(
            f"{FLAG.state}: this machine has no torch", "pip install torch, or fetch on a machine that has torch"
        )


def gather(run_dir: Path, file: str, say: Callable[[str], None]) -> int:
    """Write the newest usable checkpoint of the run folder into `file`; return the exit code.

    `say` gets each output line of the library's command. Names in these lines come from hosts.
    """
    command = [script.python(), "-P", "-m", "muster.checkpoint", str(run_dir.resolve()), file]
    variables = folders.with_muster(os.environ)
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
        assert child.stdout is not None
        for line in child.stdout:
            say(line.decode(errors="replace").rstrip())
    if child.returncode < 0:
        hint = "it needs memory for the whole file: free -g; see what the system did: dmesg | tail"
        raise DeployError(
            f"{FLAG.state} {file}: not written: the program that joins it {ended_how(child.returncode)}", hint
        )
    return child.returncode
