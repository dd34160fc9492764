"""Refuse the old options of `fab deploy`, and show the command with today's: --name is --run, --run is --script.

Pure: words in, words out.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence

from ..core.errors import UsageError

# What can only be a script and its arguments: a blank, a path, a Python file. A run's id has no blank and no slash.
_SCRIPT = re.compile(r"-m\b|.*[\s/]|.*\.py$", re.DOTALL)


def refuse(typed: Sequence[str], run: str, script: str, name: str) -> None:
    """Raise UsageError for --name, or a script behind --run; its hint is the command `typed`, in today's options."""
    old_run = bool(_SCRIPT.match(run)) and not script
    if not name and not old_run:
        return
    script_is = f"--run {run}: not a run's id; a script stands behind --script"
    message = script_is if old_run else f"--name {name}: --run names the run"
    raise UsageError(message, f"fab {shlex.join(in_new_words(typed, old_run))}")


def in_new_words(typed: Sequence[str], script_behind_run: bool) -> list[str]:
    """The words of a command with today's options. What follows `--` is the user's script, and stays."""
    new = {"--name": "--run", **({"--run": "--script"} if script_behind_run else {})}
    end = typed.index("--") if "--" in typed else len(typed)
    options = [word.partition("=") for word in typed[:end]]
    return ["".join((new.get(name, name), *rest)) for name, *rest in options] + list(typed[end:])
