"""A word that the command line does not know, and what its user may have meant. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Sequence

from ..core.errors import UsageError
from ..core.near import near
from ..core.program import FAB
from ..job.options import FLAG

_SCRIPT = re.compile(r".*\.(?:py|sh)|python3?|torchrun|accelerate|deepspeed")
_WITH_SCRIPT = ("deploy", "up")
# What other programs call our commands.
_ELSEWHERE = {
    **dict.fromkeys(("run", "launch", "train"), "up"),
    **dict.fromkeys(("start", "submit"), "deploy"),
    **dict.fromkeys(("ps", "top"), "status"),
    **dict.fromkeys(("ls", "list"), "runs"),
    **dict.fromkeys(("kill", "cancel"), "stop"),
    **dict.fromkeys(("doctor", "check", "validate"), "preflight"),
    **{"ssh": "shell", "rm": "down", "pull": "fetch", "nvidia-smi": "gpus"},
}
# What other programs call our options: docker and sbatch.
_OPTIONS_ELSEWHERE = dict.fromkeys(("--name", "--job-name"), FLAG.run)
# Options of torchrun and its like for what Muster is told in another way.
_LAUNCHERS = {
    **dict.fromkeys(("--nnodes", "--num-machines"), f"a node is a host: as many as {FLAG.hosts} names"),
    **dict.fromkeys(("--node-rank", "--machine-rank"), f"each host's rank is its place in {FLAG.hosts}"),
    **dict.fromkeys(("--master-addr", "--rdzv-endpoint"), f"the nodes meet at the first host of {FLAG.hosts}"),
}
# A run as people name it.
_RUN_ID = re.compile(r"latest|[0-9]{4}-[0-9]{2}-[0-9]{2}-\S*")


def refusal(
    unknown: str, task: str, options: Collection[str], tasks: Collection[str], typed: Sequence[str]
) -> UsageError:
    """The error for one of the words `typed` that nobody knows, behind `task` if that is not empty.

    `unknown`: the word, or its option alone. `options`: those of the task, with their dashes.
    """
    word = next((word for word in typed if _is_of(unknown, word)), unknown)
    before = typed[typed.index(word) - 1] if word in typed[1:] else ""
    name, equals, value = word.partition("=")
    if (task, name) == ("up", FLAG.env):
        return UsageError(f"up has no option {FLAG.env}", f"the script has this shell's variables: {_in_front(typed)}")
    if name.startswith("-"):
        of_script = "--" in typed and task in _WITH_SCRIPT and name in [each.partition("=")[0] for each in typed]
        elsewhere = _OPTIONS_ELSEWHERE.get(name)
        meant = elsewhere if elsewhere in options else near(name, options, 0.85 if of_script else 0.7)
        help = f"{FAB} --help {task}" if task else f"{FAB} --list"
        where = f"{task} has no option {name}" if task else f"no option {name}"
        instead = _LAUNCHERS.get(name.replace("_", "-"), "")
        if instead and task == "deploy" and FLAG.slurm not in typed:
            return UsageError(f"{where}; {instead}", _without(name, typed))
        command = _script_behind(name, typed) if task in _WITH_SCRIPT else ""
        if command and not near(name, options, 0.85):
            return UsageError(f"{where}; put a script after --", command)
        if of_script and not meant:
            return UsageError(where, f"an option of the script stands behind it: {_behind(name, typed)}; or {help}")
        return UsageError(where, f"did you mean {meant}{equals}{value}? {help}" if meant else help)
    if before.endswith(","):
        return UsageError(f"{word}: not an option of {task}", f"no blank after a comma: {before}{word}")
    if task in _WITH_SCRIPT and _SCRIPT.fullmatch(word):
        at = list(typed).index(word) if word in typed else len(typed)
        command = shlex.join([FAB, *typed[:at], "--", *(typed[at:] or [word])])
        return UsageError(f"{word}: put a script after --", command)
    if task:
        return UsageError(f"{word}: not an option of {task}", _placed(word, task, options, typed))
    return no_command(word, tasks, typed)


def no_command(word: str, tasks: Collection[str], typed: Sequence[str]) -> UsageError:
    """The error for a command that there is not."""
    return UsageError(f"no command {word}", _command(word, tasks, typed))


def _placed(word: str, task: str, options: Collection[str], typed: Sequence[str]) -> str:
    """The command in which a bare word stands where it may have been meant."""
    at = list(typed).index(word) if word in typed else len(typed)
    head, tail = list(typed[:at]), list(typed[at + 1 :])
    if task == "exec":
        return shlex.join([FAB, *head, "--", word, *tail])
    if FLAG.run in options and _RUN_ID.fullmatch(word):
        return shlex.join([FAB, *head, FLAG.run, word, *tail])
    if FLAG.hosts in options and FLAG.hosts not in typed and at < len(typed):
        return f"{shlex.join([FAB, *head, FLAG.hosts, word, *tail])}; or {FAB} --help {task}"
    return f"{FAB} --help {task}"


def _command(word: str, tasks: Collection[str], typed: Sequence[str]) -> str:
    """The command that may have been meant, with the words behind it."""
    rest = list(typed[list(typed).index(word) + 1 :]) if word in typed else []
    if word in ("help", "version"):
        return shlex.join([FAB, f"--{word}" if rest or word == "version" else "--list", *rest])
    meant = _ELSEWHERE.get(word) or near(word, tasks)
    if meant in _WITH_SCRIPT and rest and "--" not in rest and _SCRIPT.fullmatch(rest[0]):
        rest = ["--", *rest]
    return shlex.join([FAB, meant, *rest]) if meant else f"{FAB} --list"


def _in_front(typed: Sequence[str]) -> str:
    """`up --env NAME=VALUE` as a shell has it. The value may be a secret, and is not repeated."""
    at = next(at for at, word in enumerate(typed) if word.partition("=")[0] == FLAG.env)
    own = typed[at].partition("=")[2]
    name = (own or "".join(typed[at + 1 : at + 2])).partition("=")[0]
    rest = [*typed[:at], *typed[at + (1 if own else 2) :]]
    return f"{name or 'NAME'}=... {shlex.join([FAB, *rest])}"


def _without(name: str, typed: Sequence[str]) -> str:
    """The command without an option, and its value."""
    before, _, after = _around(name, typed)
    return shlex.join([FAB, *before, *after])


def _script_behind(name: str, typed: Sequence[str]) -> str:
    """The command in which a script that was given as an option's value stands behind --; empty if none was."""
    before, value, after = _around(name, typed)
    if "--" in typed or not value.endswith((".py", ".sh")):
        return ""
    return shlex.join([FAB, *before, *after, "--", value])


def _around(name: str, typed: Sequence[str]) -> tuple[list[str], str, list[str]]:
    """The words before an option, its value, which may be empty, and the words behind it."""
    at = next((at for at, word in enumerate(typed) if word.partition("=")[0] == name), len(typed))
    own = "".join(typed[at : at + 1]).partition("=")[2]
    behind = list(typed[at + 1 :])
    value = own or next((word for word in behind[:1] if not word.startswith("-")), "")
    return list(typed[:at]), value, behind[1:] if value and not own else behind


def _behind(name: str, typed: Sequence[str]) -> str:
    """The command in which an option, and its value if one follows, stand behind the script."""
    before, value, after = _around(name, typed)
    return shlex.join([FAB, *before, *after, name, *([value] if value else [])])


def _is_of(unknown: str, word: str) -> bool:
    """Whether a typed word is the unknown one, with or without its value: `--lr` of `--lr=3`, `-n` of `-n2`."""
    return unknown in (word, word.partition("=")[0]) or (
        unknown[:1] == "-" != unknown[1:2] and word.startswith(unknown)
    )
