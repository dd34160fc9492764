"""A word that the command line does not know, and what its user may have meant. Pure."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Collection, Sequence

from ..core.errors import UsageError
from ..core.near import near
from ..core.program import FAB

_UNKNOWN = re.compile(r"No idea what (?P<word>.+) is!", re.DOTALL)
_SCRIPT = re.compile(r".*\.(?:py|sh)|python3?|torchrun|accelerate|deepspeed")
_WITH_SCRIPT = ("deploy", "up")


def refusal(
    message: str, task: str, options: Collection[str], tasks: Collection[str], typed: Sequence[str]
) -> UsageError:
    """The error for invoke's `message` about one of the words `typed`, behind `task` if that is not empty.

    `options`: those of the task, with their dashes.
    """
    match = _UNKNOWN.fullmatch(message)
    if not match:
        return UsageError(message, f"{FAB} --list, {FAB} --help {task or 'TASK'}")
    word = _bare(match["word"])
    before = typed[typed.index(word) - 1] if word in typed[1:] else ""
    name, equals, value = word.partition("=")
    if (task, name) == ("up", "--env"):
        return UsageError("up has no option --env", f"the script has this shell's variables: NAME=VALUE {FAB} up ...")
    if name.startswith("-"):
        meant = near(name, options)
        help = f"{FAB} --help {task}" if task else f"{FAB} --list"
        where = f"{task} has no option {name}" if task else f"no option {name}"
        return UsageError(where, f"did you mean {meant}{equals}{value}? {help}" if meant else help)
    if before.endswith(","):
        return UsageError(f"{word}: not an option of {task}", f"no blank after a comma: {before}{word}")
    if task in _WITH_SCRIPT and _SCRIPT.fullmatch(word):
        at = list(typed).index(word) if word in typed else len(typed)
        command = shlex.join([FAB, *typed[:at], "--", *(typed[at:] or [word])])
        return UsageError(f"{word}: a script stands behind --", command)
    if task:
        return UsageError(f"{word}: not an option of {task}", f"{FAB} --help {task}")
    meant = near(word, tasks)
    return UsageError(f"no command {word}", f"{FAB} {meant}" if meant else f"{FAB} --list")


def _bare(shown: str) -> str:
    """A word without the quotes that invoke shows it in."""
    try:
        return str(ast.literal_eval(shown))
    except (ValueError, SyntaxError):
        return shown.strip("'\"")
