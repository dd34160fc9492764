"""Refuse options under their old names, and show the command with today's.

Pure: words in, words out. `fab deploy`: --name is --run, and --run is --script. `fab up` and `fab preflight`: --ground
is --backend. `fab preflight`: --backend is --collectives.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence

from ..core.errors import UsageError
from ..core.program import FAB

# What can only be a script and its arguments: a blank, a path, a Python file. A run's id has no blank and no slash.
_SCRIPT = re.compile(r"-m\b|.*[\s/]|.*\.py$", re.DOTALL)
# Values of today's --collectives that are no values of today's --backend.
_LIBRARIES = ("gloo", "nccl")


def refuse_names(typed: Sequence[str], run: str, script: str, name: str) -> None:
    """Raise UsageError for --name, or a script behind --run; its hint is the command `typed`, in today's options."""
    old_run = bool(_SCRIPT.match(run)) and not script
    if not name and not old_run:
        return
    script_is = f"--run {run}: not a run's id; a script stands behind --script"
    message = script_is if old_run else f"--name {name}: --run names the run"
    raise UsageError(message, _today(typed, {"--name": "--run", **({"--run": "--script"} if old_run else {})}))


def refuse_ground(typed: Sequence[str], ground: str, backend: str = "") -> None:
    """Raise UsageError for --ground, or for gloo or nccl behind --backend; its hint is the command of today."""
    if ground:
        message = f"--ground {ground}: --backend says where the nodes run"
    elif backend in _LIBRARIES:
        message = f"--backend {backend}: --collectives names the library, --backend says where the nodes run"
    else:
        return
    raise UsageError(message, _today(typed, {"--ground": "--backend", "--backend": "--collectives"}))


def _today(typed: Sequence[str], names: Mapping[str, str]) -> str:
    """The command with today's `names` of options. The words after `--` are the user's script, and stay."""
    end = typed.index("--") if "--" in typed else len(typed)
    options = [word.partition("=") for word in typed[:end]]
    words = ["".join((names.get(name, name), *rest)) for name, *rest in options] + list(typed[end:])
    return f"{FAB} {shlex.join(words)}"
