"""Ask the user's own git about a folder. It starts no monitor of the file system, and takes no lock.

Nothing of the repository's own settings runs a program for what we ask.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

_PATIENCE_S = 60.0
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "-c", "color.ui=false")


def ask(folder: Path, *words: str, literal: bool = True) -> bytes:
    """The output of git in that folder. `literal`: no path is a pattern; `check-ignore` refuses that, and has none.

    Raises CalledProcessError if git refuses (no repository, no commit, another user's folder), OSError without git,
    TimeoutExpired if it does not end.
    """
    # Inside a git hook, variables name another repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**own, "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": str(int(literal))}
    command = ["git", "-C", str(folder), *_QUIET, *words]
    return subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        timeout=_PATIENCE_S,
    ).stdout


def names(folder: Path, *words: str) -> list[str]:
    """The paths that a git command with -z prints, whatever characters they contain."""
    return [os.fsdecode(name) for name in ask(folder, *words).split(b"\0") if name]
