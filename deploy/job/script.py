"""Read a script's command as people type it (`torchrun --nproc-per-node 8 train.py`).

Muster itself starts one torchrun per node. So it drops `python` and `torchrun` in front of a script, and keeps what
they say about ranks. Another launcher, a shell script or a program runs once per node. If Muster cannot follow a word,
the error names it and shows the command that works. `--local-rank` gets the spelling that the script uses.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import dropwhile, takewhile
from pathlib import Path
from typing import Literal, NoReturn

from ..core import plain_file, text
from ..core.errors import UsageError
from ..core.program import COMMAND, script_option
from ..core.suggest import near_match, near_program
from . import launchers, values
from .launchers import MEETING, REFUSED, REFUSED_FLAGS, TorchrunWords, dest_of, underscored
from .option_words import note_of_own, retyped, typed_again
from .options import EACH_EXAMPLE, FLAG, Options
from .script_file import PER_NODE as PER_NODE
from .script_file import in_folder
from .secrets import is_likely

# Options that may come before the name of the script, module or program.
_KINDS = ("-m", "--no-python", PER_NODE)
# Names in braces that each node fills in in a command of --each (trainer/node/launch/launcher.py). A name in ${} is for
# a shell.
_PLACES = ("node_rank", "nodes", "ranks", "master", "port")
_IN_BRACES = re.compile(r"(?<!\$)\{(\w{1,40})\}")
_LAUNCHERS = ("accelerate", "deepspeed", "bash", "sh")
# The modules behind launchers' commands: `python -m MODULE` means the same as these words.
_LAUNCHER_MODULES = {
    "accelerate.commands.launch": ("accelerate", "launch"),
    "accelerate.commands.accelerate_cli": ("accelerate",),
    "deepspeed.launcher.runner": ("deepspeed",),
}
# The launchers' options for what Muster decides.
_NODE_OPTIONS = {
    "accelerate": {
        *("--num_machines", "--machine_rank", "--main_process_ip", "--main_process_port", "--rdzv_backend"),
        *("--deepspeed_hostfile", "--deepspeed_inclusion_filter", "--deepspeed_exclusion_filter"),
        *("--deepspeed_multinode_launcher", "--mpirun_hostfile"),
    },
    "deepspeed": {
        *("--hostfile", "-H", "--include", "-i", "--exclude", "-e", "--num_nodes", "--node_rank"),
        *("--master_addr", "--master_port", "--launcher", "--no_ssh"),
    },
}
# A command, word by word.
Words = tuple[str, ...]
_SETTINGS = (".yaml", ".yml", ".json")
# A program of the image, such as a package's own command: no path, no Python file.
_PROGRAM = re.compile(r"\w[\w+-]*")
_PYTHON = re.compile(r"(?:.*/)?python(?:3(?:\.\d+)?)?")
_VARIABLE = re.compile(rf"{values.VARIABLE.pattern}=")
# The agent sets these for each rank.
_GIVEN = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "NODE_RANK", "NNODES", "MASTER_ADDR", "MASTER_PORT"}
_MOST_SCRIPT = 1 << 20  # bytes of a script that is read
_SHEBANG = re.compile(r"#! ?\S{1,100}[/ ](?:ba|da|k|z)?sh\b")
# torchrun starts Python unbuffered, and -B only keeps Python from writing .pyc files.
_IGNORED_OPTIONS = ("-u", "-B", "-uB", "-Bu")
_PYTHON_OPTIONS = {"-OO": "PYTHONOPTIMIZE=2", "-O": "PYTHONOPTIMIZE=1", "-W": "PYTHONWARNINGS=", "-X": ""}
_TORCHRUN = ("torch.distributed.run", "torch.distributed.launch")
# The argument that torch.distributed.launch passes to a script; torchrun fills in the number.
_LOCAL_RANK, _LOCAL_RANK_UNDERSCORED = "--local-rank=${local_rank}", "--local_rank=${local_rank}"
# Shell operators: an operator that begins a word, or a `;` that ends one. Quoted parts are removed before.
_QUOTED = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_OPERATOR = re.compile(r"(?:^|\s)(&&|\|\|?|&|[0-9]?>>?|<)|(;)(?=\s|$)")
# Endings of a command that are not needed: those that save its output or let it run in the background. An ending with
# a quoted file name is not recognised.
_IGNORED_ENDING = re.compile(
    r"(?:\s{0,20}(?<!\S)(?:\d?>&\d|(?:\d|&)?>>?\s{0,20}[^\s&|<>\"';]{1,400}|"
    r"\|&?\s{0,20}tee\s{1,20}(?:-a\s{1,20})?[^\s&|<>\"';]{1,400}|&)){1,10}\s{0,20}$"
)
# A fixed init_method for torch.distributed; one that begins with `tcp://{` has names that Muster fills in.
_OWN_ADDRESS = re.compile(r"(?:^|=)tcp://(?!\{)")


@dataclass(frozen=True)
class ScriptCommand:
    """What is to run. `words`: in torchrun's form, or `--per-node COMMAND ARGS`.

    torchrun's form is `train.py ARGS`, `-m pkg.train ARGS`, or `--no-python PROGRAM ARGS` for a program as each rank.

    `processes`: ranks per node; `nodes`: how many nodes; `restarts`: how often failed ranks are restarted; None: the
    command does not say. `notes`: sentences about words that are not used. `python`: the command begins with `python`.
    """

    words: Words
    processes: Literal["auto"] | int | None = None
    nodes: int | None = None
    restarts: int | None = None
    notes: tuple[str, ...] = ()
    python: bool = False

    @property
    def bare(self) -> bool:
        """Whether the run's only rank starts without torchrun's variables, as the command does in a shell.

        That is so if the command begins with `python` or runs once per node, and neither it nor --nproc sets the number
        of ranks.
        """
        return (self.python or self.words[:1] == (PER_NODE,)) and self.processes is None

    def asked_ranks(self, option: str) -> str:
        """The value of --nproc, or else of torchrun's own option. Raises UsageError if the two differ."""
        return _one_of(FLAG.nproc, option, self.processes)

    def asked_restarts(self, option: str) -> str:
        """The value of --restarts, or else of torchrun's own option. Raises UsageError if the two differ."""
        return _one_of(FLAG.restarts, option, self.restarts)

    def refuse_nodes(self, nodes: int, hint: str) -> None:
        """Raise UsageError if the command asks for another number of nodes than the run has (`nodes`)."""
        if self.nodes not in (None, nodes):
            raise UsageError(f"torchrun --nnodes {self.nodes}: the run has {text.several(nodes, 'node')}", hint)


def _one_of(flag: str, option: str, own: str | int | None) -> str:
    text = "" if own is None else str(own)
    if text and option not in ("", text):
        raise UsageError(f"{flag} {option}: the script's command says {text}", f"leave out {flag}")
    return option or text


def read(command: str, folder: Path | None, option: str = "") -> ScriptCommand:
    """Read the command of --script, or of the words after `--`. `folder`: the folder that is sent.

    Raises UsageError with the word that Muster cannot follow and the command that works.
    """
    option = option or script_option()
    typed = split_words(option, command)
    words = _shell_script(typed, folder)
    if operator := _OPERATOR.search(_QUOTED.sub("''", command)):
        alone = _IGNORED_ENDING.sub("", command)
        if not _OPERATOR.search(_QUOTED.sub("''", alone)):
            again = retyped(shlex.split(alone.removeprefix("nohup ")), option)
            continues = ", and the run continues without its terminal" * (COMMAND != "up")
            _refusal(option)(operator[1], f"Muster keeps what a run prints{continues}", again)
        shell = retyped(("bash", "-c", command), option)
        _refusal(option)(operator[1] or operator[2], "Muster does not run this command in a shell", shell)
    # A Python file may have no suffix.
    if words and folder and _PROGRAM.fullmatch(words[0]) and os.path.isfile(folder / words[0]):
        return ScriptCommand(words)
    read_command = _command(words, option)
    if words and read_command.words[read_command.words[0] in _KINDS :][:1] in ((), ("",), ("--",)):
        _refusal(option)(shlex.join(words), "no script is named", typed_again("train.py --lr 3e-4", option))
    if folder:
        read_command = replace(read_command, words=in_folder(read_command.words, folder))
    _refuse_places(read_command.words, folder, _refusal(option))
    _refuse_mistyped(read_command.words, folder, option)
    name = next(dropwhile((PER_NODE, "bash", "sh").__contains__, read_command.words), "")
    source = _text_of(name, folder) if folder else ""
    notes = (
        *read_command.notes,
        *_own_address(read_command),
        *launchers.of_slurm(name, source),
        *note_of_own(typed, source, option),
    )
    return replace(read_command, words=_as_spelled(read_command.words, source), notes=notes)


def split_words(option: str, text: str) -> Words:
    """Split an option's text into words as a shell does. Raises UsageError for an unclosed quote."""
    try:
        if not values.is_text(text):
            raise ValueError("it has a character that no command line can hold")
        return tuple(shlex.split(text))
    except ValueError as fault:
        raise UsageError(f"{option} {text}: {fault}", "quote the words as you would in a shell") from fault


def _shell_script(words: Words, folder: Path | None) -> Words:
    """A shell script's command as a node can start it: `run.sh` alone is not in PATH, and may not be executable."""
    first = words[0] if words else ""
    if not folder or not os.path.isfile(folder / first):
        return words
    if not first.endswith(".sh"):
        return ("bash", *words) if _SHEBANG.match(_text_of(first, folder)) else words
    # The kernel does not start a script without a #! line; only a shell does.
    if not os.access(folder / first, os.X_OK) or not _text_of(first, folder).startswith("#!"):
        return ("bash", *words)
    return words if "/" in first else (f"./{first}", *words[1:])


def once_a_node(each: str, script: str) -> str:
    """The command of --each in the form of --script; `script` if there is no --each.

    Raises UsageError for a name in braces that looks like a misspelled one of Muster's.
    """
    # Names that resemble none of Muster's may be meant for the script.
    for name in _IN_BRACES.findall(each):
        if name not in _PLACES and (meant := near_match(name.lower(), _PLACES)):
            own = f"if the braces belong to the script, put the command into a shell script: {FLAG.each} 'bash run.sh'"
            raise UsageError(f"{FLAG.each}: there is nothing called {{{name}}}", f"did you mean {{{meant}}}? {own}")
    if each and not each.strip():
        raise UsageError(f"{FLAG.each}: the command is missing", f"for example: {EACH_EXAMPLE}")
    return f"{PER_NODE} {each}" if each else script


def as_given(words: Sequence[str], bare: bool) -> list[str]:
    """Turn the words of a ScriptCommand back into words that `read` accepts; `bare`: see ScriptCommand."""
    return [*["python"] * (bare and words[:1] not in ([PER_NODE], (PER_NODE,))), *words]


def last_words(words: list[str]) -> tuple[Options, str]:
    """The command as people type it after all options; or, if it must be an option, the options with --each."""
    per_node, typed = words[:1] == [PER_NODE], as_typed(words)
    first = words[1] if per_node and words[1:] else ""
    if per_node and not (Path(first).name in ("bash", "sh") or first.endswith(".sh")):
        return Options(each=typed), ""
    return Options(), typed


def as_typed(words: list[str]) -> str:
    """The command for people to read, without Muster's mark --per-node."""
    return shlex.join(words[1:] if words[:1] == [PER_NODE] else words)


def _text_of(name: str, folder: Path) -> str:
    """The text of a script in the folder; empty if it cannot be read."""
    with suppress(OSError, UnicodeDecodeError):
        return plain_file.read(folder / name, _MOST_SCRIPT, folder).decode()
    return ""


def _own_address(command: ScriptCommand) -> Words:
    """A note about a fixed address in the script's arguments: torchrun hosts the store, so ranks would wait there.

    For a `bare` command the note is only about several nodes: on one node, its rank hosts its own store, as mp.spawn
    does.
    """
    own = () if command.words[:1] == (PER_NODE,) else filter(_OWN_ADDRESS.search, command.words)
    where = "on several nodes, " * command.bare
    hint = f"use env://, which Muster sets for the run, or use {FLAG.each}"
    why = "ranks that meet at an address chosen by the script would wait there forever"
    return tuple(f"{word}: {where}{why}: {hint}" for word in own)


def _refuse_mistyped(words: Words, folder: Path | None, option: str) -> None:
    """Raise UsageError for a program whose name looks like a misspelled one of the folder's pyproject.toml."""
    meant = near_program(folder, words[1]) if folder and words[:1] == (PER_NODE,) else ""
    if meant:
        shell = retyped(("bash", "-c", shlex.join(words[1:])), option)
        hint = f"did you mean `{retyped((meant, *words[2:]), option)}`? for a program in the image: {shell}"
        raise UsageError(f"{words[1]}: pyproject.toml has no such script", hint)


def _as_spelled(words: Words, source: str) -> Words:
    """The words, with --local-rank spelled as in the script: scripts for torch before 2.0 use an underscore."""
    if words[1:2] == (_LOCAL_RANK,) and "--local_rank" in source and "--local-rank" not in source:
        return (words[0], _LOCAL_RANK_UNDERSCORED, *words[2:])
    return words


def _command(words: Words, option: str) -> ScriptCommand:
    refuse = _refusal(option)
    first = words[0] if words else ""
    name = first.rpartition("/")[2]
    if _VARIABLE.match(first):
        _refuse_variables(words, "there is a variable in front of the command", option)
    if name == "env" and words[1:] and _VARIABLE.match(words[1]):
        _refuse_variables(words[1:], "Muster gives the run its variables", option)
    if name in launchers.RUNNERS:
        inner = _inner(words[1:], name)
        options, note = launchers.muster_options_for(name, words[1 : len(words) - len(inner)])
        again = " ".join(filter(None, (retyped(inner, option, options), note)))
        if COMMAND == "up" and name in launchers.TERMINALS:
            refuse(
                first, "a run on this machine ends with its terminal", "nohup " * again.startswith("muster ") + again
            )
        refuse(first, launchers.RUNNERS[name], again)
    if first.startswith("-") and first not in _KINDS:
        trainer = shlex.quote(f"{FLAG.args}={shlex.join(words)}")
        hint = f"for Muster's own trainer: {trainer}; for a script: {retyped(('train.py', *words), option)}"
        refuse(first, "this is an option, but a script or -m is expected here", hint)
    if _PYTHON.fullmatch(first):
        return _python_command(words, option)
    if name == "torchrun":
        return _torchrun_command(words[1:], first, option)
    if first == "-m" and words[1:2] and (words[1] in _TORCHRUN or words[1] in _LAUNCHER_MODULES):
        return _python_command(("python", *words), option)
    if name == "accelerate-launch":
        return _command((first.removesuffix("-launch"), "launch", *words[1:]), option)
    if name in _LAUNCHERS or first.endswith(".sh") or _PROGRAM.fullmatch(first):
        return ScriptCommand((PER_NODE, *words))
    if first.startswith("./"):
        return ScriptCommand((first.removeprefix("./"), *words[1:]))
    return ScriptCommand(words)


def _refuse_variables(words: Words, why: str, option: str) -> NoReturn:
    """Raise UsageError for variables in front of a script's command."""
    given = [word for word in takewhile(_VARIABLE.match, words) if word.partition("=")[0] not in _GIVEN]
    rest = words[len(list(takewhile(_VARIABLE.match, words))) :]
    _refusal(option)(words[0].partition("=")[0], why, _with_variables(given, rest, option))


def _with_variables(given: Sequence[str], words: Sequence[str], option: str) -> str:
    """The command that gives the ranks these `NAME=VALUE`: by options, or for `muster agent` by `export`.

    The ranks of `muster agent` get the shell's variables. A value that may be a secret is not repeated.
    """
    pairs = [word.partition("=")[::2] for word in given]
    hidden = [name for name, value in pairs if is_likely(name, value)]
    plain = [f"{name}={shlex.quote(value)}" for name, value in pairs if name not in hidden]
    exported = [f"{name}=..." for name in hidden]
    if COMMAND == "agent":
        exported, again = [*exported, *plain], retyped(words, option)
    else:
        options = [*(f"{FLAG.env} {word}" for word in plain), *(f"{FLAG.secret} {name}" for name in hidden)]
        again = retyped(words, option, " ".join(options))
    return f"export {' '.join(exported)}; then: {again}" if exported else again


def _refuse_places(words: Words, folder: Path | None, refuse: Refuse) -> None:
    """Raise UsageError for a launcher's option about the nodes or the rendezvous: Muster tells the launcher these."""
    launcher = words[1].rpartition("/")[2] if words[:1] == (PER_NODE,) else ""

    def is_of_launcher(word: str) -> bool:
        module = word.replace(".", "/")
        files = (Path(folder or "/", name) for name in (word, f"{module}.py", f"{module}/__main__.py"))
        return word.endswith(_SETTINGS) or not (word.endswith(".py") or any(map(os.path.isfile, files)))

    own = takewhile(is_of_launcher, words[2:])
    names = [word.partition("=")[0] for word in own]
    decided = [name for name in names if {name, underscored(name)} & _NODE_OPTIONS.get(launcher, set())]
    if decided:
        leave = f"leave out {', '.join(dict.fromkeys(decided))}"
        refuse(f"{launcher} {decided[0]}", "Muster sets the nodes and where they meet", leave)


def _python_command(words: Words, option: str) -> ScriptCommand:
    refuse = _refusal(option)
    python, rest = words[0], list(dropwhile(_IGNORED_OPTIONS.__contains__, words[1:]))
    first = rest[0] if rest else ""
    if known := next((word for word in _PYTHON_OPTIONS if first.startswith(word)), ""):
        takes_value, variable = known in ("-W", "-X") and first == known, _PYTHON_OPTIONS[known]
        value = "".join(rest[1:2]) if takes_value else first.removeprefix(known)
        given, behind = [variable + value * (known == "-W")], _inner(rest[1:], "") if takes_value else rest[1:]
        again = _with_variables(given, behind, option) if variable else retyped(behind, option)
        refuse(first, "Muster does not pass on options for Python", again)
    if first in ("-c", "-", "") or (first.startswith("-") and first != "-m"):
        refuse(shlex.join([python, *rest[:1]]), "no script is named", typed_again("train.py --lr 3e-4", option))
    if first == "-m" and rest[1:2] and (launcher := _LAUNCHER_MODULES.get(rest[1])):
        return _command((*launcher, *rest[2:]), option)
    if first == "-m" and rest[1:2] and rest[1] in _TORCHRUN:
        return _torchrun_command(tuple(rest[2:]), shlex.join([python, *rest[:2]]), option)
    command = _command(tuple(rest), option) if first.startswith("./") else ScriptCommand(tuple(rest))
    note = f"{python}: ignored; the run uses the Python in its image, or in this shell's environment"
    return replace(command, notes=(note,) if "/" in python else (), python=command.words[:1] != (PER_NODE,))


def _torchrun_command(words: Words, launcher: str, option: str) -> ScriptCommand:
    refuse = _refusal(option)
    asked = TorchrunWords(
        lambda why: refuse(launcher, why, typed_again("torchrun --nproc-per-node 2 train.py", option))
    ).read(words)
    script = tuple(asked.script)
    own, typed = words[: len(words) - len(script)], script
    # torchrun removes a `--` before or after its script's name; the words after it are the script's.
    script = script[1:] if script[:1] == ("--",) else script
    script = (script[0], *script[2:]) if script[1:2] == ("--",) else script

    def refuse_number(what: str, why: str, hint: str) -> NoReturn:
        wrong = what.rpartition(" ")[2]
        right = [re.sub(rf"(^|=){re.escape(wrong)}$", r"\g<1>2", word) for word in own]
        again = shlex.join([*launcher.split(), *right, *typed])
        refuse(what, f"{why}; {hint}".removesuffix("; "), typed_again(again, option))

    refused = {name: why for name, why in {**REFUSED, **REFUSED_FLAGS}.items() if getattr(asked, dest_of(name), None)}
    if names := ", ".join(refused):
        refuse(f"{launcher} {names}", "; ".join(dict.fromkeys(refused.values())), f"leave out {names}")
    if not script:
        refuse(launcher, "no script is named", typed_again("torchrun train.py --lr 3e-4", option))
    if asked.module:
        script = ("-m", *script)
    elif asked.no_python:
        script = ("--no-python", *script)
    else:
        script = _command(script, option).words if script[0].startswith("./") else script
    if launcher.endswith(_TORCHRUN[1]) and not asked.use_env:
        at = 2 if script[0].startswith("-") else 1
        script = (*script[:at], _LOCAL_RANK, *script[at:])
    unused = ["--standalone"] if asked.standalone else []
    unused += [name for name in MEETING if getattr(asked, dest_of(name)) is not None]
    notes = (f"{launcher} {', '.join(unused)}: not used; Muster chooses where the nodes meet",) if unused else ()
    if between := re.fullmatch(r"([0-9]{1,4}):([0-9]{1,4})", asked.nnodes or ""):
        why = "the run has one node on each host; an option of Muster says how few may be left"
        refuse(f"{launcher} --nnodes {between[0]}", why, f"leave out --nnodes, and give {FLAG.min_nodes} {between[1]}")
    nodes = _number(asked.nnodes, f"{launcher} --nnodes", refuse_number)
    restarts = _number(asked.max_restarts, f"{launcher} --max-restarts", refuse_number)
    return ScriptCommand(script, _ranks(asked.nproc_per_node, launcher, refuse_number), nodes, restarts, notes)


def _ranks(given: str | None, launcher: str, refuse: Refuse) -> Literal["auto"] | int | None:
    if given in ("gpu", "auto"):
        return "auto"
    if given in ("cpu", "xpu"):
        refuse(f"{launcher} --nproc-per-node {given}", "Muster counts the GPUs, or you give a number", "")
    count = _number(given, f"{launcher} --nproc-per-node", refuse)
    if count is not None and values.processes(count) is None:
        refuse(f"{launcher} --nproc-per-node {count}", "not a number of ranks from 1 to 1024", "")
    return count


def _number(given: str | None, name: str, refuse: Refuse) -> int | None:
    if given is None:
        return None
    if not re.fullmatch(r"[0-9]{1,4}", given):
        refuse(f"{name} {given}", "not a number", "")
    return int(given)


Refuse = Callable[[str, str, str], NoReturn]


def _refusal(option: str) -> Refuse:
    def refuse(word: str, why: str, hint: str) -> NoReturn:
        raise UsageError(f"{word}: {why}" if option == "--" else f"{option}: {word}: {why}", hint)

    return refuse


def _inner(words: Sequence[str], runner: str) -> Sequence[str]:
    """The command after a runner: from the first word that begins a command, or else after the word `run`."""
    begins = (at for at, word in enumerate(words) if _begins(word))
    at = next(begins, len(words))
    if at == len(words) and words and runner in launchers.BEFORE_ANY and _PROGRAM.fullmatch(words[0]):
        return words
    return words[at:] or (
        tuple(dropwhile(lambda word: word.startswith("-"), words[1:])) if words[:1] == ("run",) else ()
    )


def _begins(word: str) -> bool:
    name = word.rpartition("/")[2]
    return bool(_PYTHON.fullmatch(word)) or name in ("torchrun", "accelerate", "deepspeed") or word.endswith(".py")
