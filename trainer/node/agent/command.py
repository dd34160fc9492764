"""The command that a node runs once, as it can run here, and with the words that a restart adds to it.

Is its program here? If not, the part of it that would run without it.
Standard library only.
"""

from __future__ import annotations

import re
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from muster.errors import Refused

AGAIN = "MUSTER_RESTART_WITH"
# What a command for training begins with: after a profiler, say, or a tool for the terminal.
_BEGINS = re.compile(r"(?:.*/)?(?:python(?:3(?:\.\d+)?)?|torchrun|accelerate|deepspeed)|.*\.py")


def refuse_missing(words: Sequence[str]) -> None:
    """Raise Refused if nothing here can be started by the first word; the hint has a command that can."""
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
    """The command of a rank, with the words for a script that starts again, if this is not its first start.

    `again`: it is not. The count alone does not say so: where a node came back, no fault of the ranks is counted.
    """
    again = again or environment.get("TORCHELASTIC_RESTART_COUNT", "0") != "0"
    return [*words, *(shlex.split(environment.get(AGAIN, "")) if again else [])]


def _inner(words: Sequence[str]) -> Sequence[str]:
    begins = (at for at, word in enumerate(words) if _BEGINS.fullmatch(word))
    return words[next(begins, len(words)) :]


def _typed(words: Sequence[str]) -> str:
    return f"--script {shlex.quote(shlex.join(words))}"
