"""Words that are not options: read them as a run or hosts; for unknown words and options, guess what was meant."""

from __future__ import annotations

import os
import re
import shlex
import shutil
from collections.abc import Callable, Collection, Container, Sequence
from contextlib import suppress
from itertools import takewhile
from pathlib import Path

from ..core import plain_file, toml_text
from ..core.errors import UsageError
from ..core.names import RunId
from ..core.suggest import near_match
from ..job import values
from ..job.launchers import RUNNERS
from ..job.option_words import without_values
from ..job.options import FLAG

# What was typed, word by word.
Words = Sequence[str]
_STARTER = re.compile(r"python3?|torchrun|accelerate|deepspeed")
_SCRIPT = re.compile(rf".*\.(?:py|sh)|{_STARTER.pattern}")
_WITH_SCRIPT = ("deploy", "up")
# Names that other programs use for what Muster's commands do, where `near_match` would not find the command.
_COMMANDS_ELSEWHERE = {
    **dict.fromkeys(("run", "launch", "train", "start", "submit", "apply", "sbatch"), "up"),
    **dict.fromkeys(("ps", "top", "htop", "squeue", "queue", "info", "describe", "inspect"), "status"),
    **dict.fromkeys(("ls", "list", "history", "jobs"), "runs"),
    **dict.fromkeys(("tail", "output"), "logs"),
    **dict.fromkeys(("kill", "cancel", "abort", "terminate", "scancel"), "stop"),
    **dict.fromkeys(("doctor", "check", "validate", "verify", "test", "ping"), "preflight"),
    **dict.fromkeys(("restart", "continue"), "resume"),
    **dict.fromkeys(("rm", "delete", "remove", "destroy", "prune"), "clean"),
    **dict.fromkeys(("pull", "get", "download", "results", "cp", "scp", "rsync"), "fetch"),
    **dict.fromkeys(("upload", "sync", "copy"), "push"),
    **dict.fromkeys(("follow", "watch", "monitor", "wait", "connect"), "attach"),
    **dict.fromkeys(("setup", "install", "provision"), "bootstrap"),
    **dict.fromkeys(("init", "new", "example", "quickstart", "tutorial"), "demo"),
    **dict.fromkeys(("ui", "web", "open", "serve"), "board"),
    **dict.fromkeys(("diagnose", "debug", "analyze", "error"), "explain"),
    **dict.fromkeys(("man", "manual", "guide", "howto"), "docs"),
    **{"ssh": "shell", "bash": "shell", "nvidia-smi": "gpus", "tb": "tensorboard", "forward": "port",
       "tunnel": "port", "diff": "compare", "stacks": "why", "slow": "why"},
}  # fmt: skip
# Names of Muster's options in other programs: docker, sbatch, torchrun, accelerate, mpirun.
_OPTIONS_ELSEWHERE = {
    **dict.fromkeys(("--name", "--job-name"), FLAG.run),
    **dict.fromkeys(("--nproc-per-node", "--num-processes", "--gpus-per-node", "--ntasks-per-node"), FLAG.nproc),
    **dict.fromkeys(("--host", "--machines", "--nodelist", "--servers"), FLAG.hosts),
}
_HOST_FILES = ("--hostfile", "--hosts-file", "--machinefile", "--inventory")
# Options of torchrun and similar launchers, and how Muster gets the same information.
_NODES = ("--nnodes", FLAG.nodes, "--num-nodes", "--num-machines")
_LAUNCHERS = {
    **dict.fromkeys(_NODES, f"each host in {FLAG.hosts} is one node"),
    **dict.fromkeys(("--node-rank", "--machine-rank"), f"a host's node rank is its place in {FLAG.hosts}"),
    **dict.fromkeys(("--master-addr", "--rdzv-endpoint"), f"the nodes meet at the first host of {FLAG.hosts}"),
}
# Returns the error that a command line would get; None if it would be accepted.
Refused = Callable[[Words], UsageError | None]
# A run's id as Muster makes it.
_RUN_ID = re.compile(r"latest|[0-9]{4}-[0-9]{2}-[0-9]{2}(-\S*)?")
_FILE, _MOST = Path("cluster.toml"), 1 << 20


def options_of(words: Words, takes: Words, given: Container[str]) -> dict[str, str]:
    """The options that bare words set, with their texts; `takes` are the options that the command accepts this way.

    Several hosts become one text. If a word sets no option, the result is only that word, under the name "".
    """
    texts = dict[str, str]()
    for word in map(_without_folder, words):
        name = _option_of(
            word, [each for each in takes if each not in given and (each == "hosts" or each not in texts)]
        )
        if not name:
            return {name: word}
        texts[name] = f"{texts[name]},{word}" if name in texts else word
    return texts


def _option_of(word: str, free: Words) -> str:
    """The option that a bare word sets; empty if it sets none.

    A word that is not a run's name is a host, unless this folder has a cluster.toml that does not list it.
    """
    if not free or word.endswith((".py", ".sh")):
        return ""
    if "hosts" not in free:
        return free[0]
    if _is_run(word):
        return "run" if "run" in free else ""
    unclear = "run" in free and _FILE.is_file() and not any(mark in word for mark in ",@:")
    return "run" if unclear and word not in hosts_here() else "hosts"


def is_place(word: str) -> bool:
    """Whether a word is a run, or a host in this folder's cluster.toml, and so not a program."""
    return _is_run(_without_folder(word)) or word in hosts_here()


def _without_folder(word: str) -> str:
    """The run's name for a word as Tab completes it (`runs/NAME/`); other words unchanged."""
    from ..run.files import folders

    path = Path(word)
    return path.name if os.path.isdir(path) and path.parent.resolve() == folders.RUNS.resolve() else word


def _is_run(word: str) -> bool:
    """Whether a word is a run's name: of the form that Muster makes, or one of this folder's runs."""
    if _RUN_ID.fullmatch(word):
        return True
    from ..run.files import record

    return "/" not in word and word[:1] not in ("", ".") and os.path.isdir(record.path_of(RunId(word)))


def hosts_here() -> set[str]:
    """The host names in this folder's cluster.toml; nothing else of it is used, as the user may not have allowed it."""
    names = set()
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):  # it may hold anything
        hosts = toml_text.loads(plain_file.read(_FILE, _MOST, Path()).decode("utf-8-sig"))["hosts"]
        names = {host if isinstance(host, str) else str(host["name"]) for host in hosts}
    return names


def refusal(unknown: str, task: str, options: Collection[str], tasks: Collection[str], typed: Words) -> UsageError:
    """The error for one of the words `typed` that `task` does not know; without a task, for an option before it.

    `unknown`: the word, or only its option. `options`: the task's options, with their dashes.
    """
    word = next((word for word in typed if _is_of(unknown, word)), unknown)
    name = word.partition("=")[0]
    if not name.startswith("-"):
        takes = f"a script goes with {' and '.join(_WITH_SCRIPT)}" if _SCRIPT.fullmatch(word) else "not known here"
        return UsageError(f"{task} {word}: {takes}", f"muster {task} --help")
    if not task and name in ("-H", FLAG.hosts, FLAG.slurm):
        task = next((each for each in typed if each in tasks), "deploy")
        rest = [each for at, each in enumerate(typed) if each != task or task in typed[:at]]
        return UsageError(f"there is no command before {name}", shlex.join(["muster", task, *rest]))
    return _no_option(word, task, options, typed)


def _no_option(word: str, task: str, options: Collection[str], typed: Words) -> UsageError:
    """The error for an option that `task` does not have, with the corrected command."""
    name, equals, value = word.partition("=")
    before, text, after = _around(name, typed)
    where = f"{task} has no option {name}" if task else f"no option {name}"
    help = f"muster {task} --help" if task else "muster --help"
    spelled = name.replace("_", "-")
    if task in _WITH_SCRIPT and (done := _of_a_launcher(spelled, task, before, text, after)):
        return UsageError(f"{where}; {done[0]}", done[1])
    if task in _WITH_SCRIPT and word == "-m":
        at = typed.index(word)
        return UsageError(f"{where}; put a module after --", shlex.join(["muster", *typed[:at], "--", *typed[at:]]))
    behind = _behind(before, text, after, name) if task in _WITH_SCRIPT else ""
    elsewhere = _OPTIONS_ELSEWHERE.get(spelled)
    meant = elsewhere if elsewhere in options else _near_option(name, options, 0.8 if behind else 0.7)
    if task in _WITH_SCRIPT and text.endswith((".py", ".sh")) and not _near_option(name, options, 0.85):
        return UsageError(f"{where}; name the script without an option", shlex.join(["muster", *before, text, *after]))
    if behind and not meant:
        return UsageError(where, f"an option of the script goes after it: {behind}; or {help}")
    if not meant:
        return UsageError(where, help)
    own = without_values([f"{meant}={value}"] if equals else [meant, *([text] if text else [])])
    return UsageError(where, f"did you mean {own[0]}? {shlex.join(['muster', *before, *own, *after])}")


def _near_option(name: str, options: Collection[str], alike: float) -> str:
    """The option that may be meant; empty if none. The dashes do not count as a similarity."""
    typed, bare = name.lstrip("-"), {each.lstrip("-"): each for each in options}
    begun = [each for each in bare if len(typed) > 2 and each.startswith(typed)]
    return bare.get(near_match(typed, bare, alike), bare[begun[0]] if len(begun) == 1 else "")


def _of_a_launcher(name: str, task: str, before: Words, value: str, after: Words) -> tuple[str, str] | None:
    """For a launcher's option: how Muster does this instead, and the command to type; None for any other option."""
    if name in _HOST_FILES and task == "deploy" and value:
        hosts = f'"$(paste -sd, {shlex.quote(value)})"'
        return (
            f"{FLAG.hosts} takes a list",
            f"{shlex.join(['muster', *before, FLAG.hosts])} {hosts} {shlex.join(after)}",
        )
    if name in _NODES and task == "up" and value.isdecimal():
        workers = [FLAG.workers, str(int(value) - 1)] if int(value) > 1 else []
        return "here, the master is a node too, in addition to the workers", shlex.join(
            ["muster", *before, *workers, *after]
        )
    if name in _LAUNCHERS and task == "deploy" and FLAG.slurm not in before:
        return _LAUNCHERS[name], shlex.join(["muster", *before, *after])
    return None


def no_command(word: str, tasks: Collection[str], typed: Words, refused: Refused) -> UsageError:
    """The error for a command that does not exist.

    `refused` checks the suggested command line: Muster may not accept what another program accepts.
    """
    words = _command(word, tasks, typed)
    fault = refused(words) if words else None
    again = shlex.join(["muster", *(words or ["--help"])])
    return UsageError(f"no command {word}", fault.hint.rpartition("? ")[2] if fault else again)


def refuse_hosts_behind(own: Words, program: Words) -> None:
    """Raise UsageError if the hosts are among the words of the program, while the command's `own` words have none."""
    first = program[0]
    again = ["muster", *(word for word in own if word != "--"), FLAG.hosts]
    for at, word in enumerate(program):
        flag, equals, value = word.partition("=")
        if at and flag in (FLAG.hosts, "-H", "--host") and (value or program[at + 1 :]):
            hosts, behind = (value, program[at + 1 :]) if equals else (program[at + 1], program[at + 2 :])
            words = shlex.join([*again, hosts, *program[:at], *behind])
            raise UsageError(f"{word}: it comes after {first}, so the script would get it", words)
    start = next((at for at, word in enumerate(program) if _SCRIPT.fullmatch(word)), 0)
    names = [word.strip(",") for word in program[: start or 1]]
    if not _is_program(first) and ("," in first or (start and all(map(values.destination, names)))):
        words = shlex.join([*again, ",".join(names), *program[start or 1 :]])
        raise UsageError(f"{' '.join(program[: start or 1])}: name hosts with {FLAG.hosts}", words)


def refuse_hosts_apart(hosts: str, words: Words, own: Words = ()) -> None:
    """Raise UsageError if the list of an option for hosts continues in the words after it: `-H a, b`.

    So does `-H gpu-1 gpu-2`, which a shell makes of `-H gpu-{1,2}`. `own`: the command's words before, which end with
    the list.
    """
    listed, last = hosts.split(","), (own or [hosts])[-1].rstrip(",")
    if hosts and last.endswith(hosts.rstrip(",").rpartition(",")[2]) and (more := _more_hosts(listed, words)):
        whole = ",".join([last, *more])
        again = ["muster", *own[:-1], whole, *words[len(more) :]] if own else [FLAG.hosts, whole]
        why = "leave out the space after the comma" if hosts.endswith(",") else "separate hosts with commas"
        raise UsageError(f"{hosts} {words[0]}: {why}", shlex.join(again))


def _more_hosts(hosts: Words, words: Words) -> list[str]:
    """The hosts with which a list of hosts continues in the first of these words."""
    shapes = {_shape(host) for host in (*hosts, *hosts_here())}
    bare = (word.strip(",") for word in words)
    more = list(takewhile(lambda word: not _is_run(word) and _continues(word, shapes), bare))
    if words and not (more or hosts[-1] or _is_program(words[0]) or _is_run(words[0])):
        return [words[0].strip(",")]
    return more


def _is_program(word: str) -> bool:
    return bool(word in RUNNERS or _SCRIPT.fullmatch(word) or os.path.exists(word) or shutil.which(word))


def _continues(word: str, shapes: Container[str]) -> bool:
    """Whether a word is one more host: it has a user or a port, or differs from a host only in a number or letter."""
    is_host = not (_is_program(word) or word.isdecimal()) and values.destination(word) is not None
    return is_host and ("@" in word or ":" in word or _shape(word) in shapes)


def _shape(host: str) -> str:
    """A host's name without what tells it from its neighbours: `gpu-0` for gpu-12 and gpu-b."""
    name = re.sub(r":[0-9]+$", "", host.rpartition("@")[2])
    return re.sub(r"[0-9]+|(?<![A-Za-z])[a-z]$", "0", name)


def _command(word: str, tasks: Collection[str], typed: Words) -> list[str]:
    """The command that may have been meant, with the words after it; empty if none is similar."""
    rest = list(typed[list(typed).index(word) + 1 :]) if word in typed else []
    if word == "hosts" and rest[:1] and rest[0] in tasks:
        return rest
    if _SCRIPT.fullmatch(word):
        rest, meant = [word, *rest], "up"
    else:
        meant = _COMMANDS_ELSEWHERE.get(word) or near_match(word, tasks)
    if meant == "up" and {each.partition("=")[0] for each in rest} & {FLAG.hosts, "-H", FLAG.slurm, FLAG.cluster}:
        meant = "deploy"
    return [meant, *rest] if meant else []


def _around(name: str, typed: Words) -> tuple[list[str], str, list[str]]:
    """The words before an option, its value (may be empty), and the words after it."""
    at = next((at for at, word in enumerate(typed) if word.partition("=")[0] == name), len(typed))
    own = "".join(typed[at : at + 1]).partition("=")[2]
    behind = list(typed[at + 1 :])
    value = own or next((word for word in behind[:1] if not (word.startswith("-") or _STARTER.fullmatch(word))), "")
    return list(typed[:at]), value, behind[1:] if value and not own else behind


def _behind(before: Words, value: str, after: Words, name: str) -> str:
    """The command with the option and its value moved after the script; empty if there is no script."""
    words = [word for word in after if word != "--"]
    at = next((at for at, word in enumerate(words) if word.endswith((".py", ".sh"))), len(words))
    own = [value] if value else []
    again = ["muster", *before, *words[: at + 1], name, *own, *words[at + 1 :]]
    return shlex.join(again) if at < len(words) else ""


def _is_of(unknown: str, word: str) -> bool:
    """Whether a typed word has the unknown option, with or without its value: `--lr` in `--lr=3`, `-n` in `-n2`."""
    return unknown in (word, word.partition("=")[0]) or (
        unknown[:1] == "-" != unknown[1:2] and word.startswith(unknown)
    )
