"""The user's command that a node runs: whether its program exists here, and the arguments that a restart adds.

If the program is missing, the hint shows a command that would run, if there is one. Standard library only.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.errors import Refused

AGAIN = "MUSTER_RESTART_WITH"
# The first word of a training command. A wrapper, such as a profiler or a terminal tool, may come before it.
_BEGINS = re.compile(r"(?:.*/)?(?:python(?:3(?:\.\d+)?)?|torchrun|accelerate|deepspeed)|.*\.py")


def refuse_missing(words: Sequence[str]) -> None:
    """Raise Refused if the first word is no program here; the hint has a command that would run, or what to install."""
    name = words[0]
    if shutil.which(name) or (Path(name).is_file() and "/" in name):
        return
    if Path(name).is_file():
        hint = f"write it as in a shell: {_typed(['./' + name, *words[1:]])}"
    elif Path(name).is_dir():
        hint = "it is a folder: give the script in it"
    elif file := next((each for each in (f"{name}.py", f"{name}.sh") if Path(each).is_file()), ""):
        hint = f"did you mean {_typed([file, *words[1:]])}?"
    elif rest := _inner(words[1:]):
        hint = f"without it: {_typed(rest)}; or add its package to the run's packages"
    else:
        hint = "add its package to the run's packages or to the image"
    raise Refused(f"no such program: {name}", hint)


def words_of_start(words: Sequence[str], environment: Mapping[str, str], again: bool) -> list[str]:
    """The command of a rank; if this is not its first start, with the arguments for a script that starts again.

    `again`: the caller knows that this is not the first start. torchrun's restart count alone does not show that: when
    the ranks start again because a node came back, torchrun counts no restart.
    """
    again = again or environment.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return [*words, *(shlex.split(environment.get(AGAIN, "")) if again else [])]


def _inner(words: Sequence[str]) -> Sequence[str]:
    begins = (at for at, word in enumerate(words) if _BEGINS.fullmatch(word))
    return words[next(begins, len(words)) :]


def _typed(words: Sequence[str]) -> str:
    return f"--script {shlex.quote(shlex.join(words))}"
