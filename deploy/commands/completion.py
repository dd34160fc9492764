"""`muster completion` prints a script that makes a shell complete words; scripts/completion.sh chooses the words.

The script contains the commands and options of this version. At the Tab key the shell itself reads cluster.toml, SSH's
settings and runs/: a Python that imports the commands would take half a second.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from ..core.errors import DONE, UsageError
from ..job.option_words import command_of
from ..job.options import FLAG, Options, flag_of, options_of, rules_of
from .command import Command, command

if TYPE_CHECKING:
    from ..report.console import Console

_COMMANDS = " ".join(("fab", "muster"))
# How each shell calls `_muster_words`. bash treats `=` as a separate word.
_SHELLS = {
    "bash": """
_muster_complete() {
    local word words=() last
    for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
        last=$((${#words[@]} - 1))
        if [ "$word" = = ] && [ "$last" -ge 0 ]; then continue; fi
        words+=("$word")
    done
    [ "${COMP_WORDS[COMP_CWORD]}" != = ] || words+=("")
    COMPREPLY=()
    while IFS= read -r word; do COMPREPLY+=("$word"); done < <(_muster_words "${words[@]}")
    # What is typed before a `:` is a word of its own to bash, and must not be repeated.
    local typed=${words[${#words[@]} - 1]}
    if [[ $typed == *:* && $COMP_WORDBREAKS == *:* ]]; then COMPREPLY=("${COMPREPLY[@]#"${typed%:*}:"}"); fi
}
complete -o default -F _muster_complete COMMANDS
""",
    "zsh": """
_muster_complete() {
    local -a found
    found=("${(@f)$(_muster_words "${(@)words[2,CURRENT]}")}")
    found=("${(@)found:#}")
    if (( ${#found} )); then compadd -Q -- "${found[@]}"; else _files; fi
}
whence compdef >/dev/null || { autoload -Uz compinit && compinit -i; }
compdef _muster_complete COMMANDS
""",
}
_INSTALL = {
    "bash": "> ~/.muster.bash && echo '. ~/.muster.bash' >> ~/.bashrc",
    "zsh": "> ~/.muster.zsh && echo '. ~/.muster.zsh' >> ~/.zshrc",
}


@command(
    example="muster completion zsh > ~/.muster.zsh",
    codes={DONE: "the text is on standard output"},
    place="shell",
)
def completion(options: Options, console: Console) -> int:
    """Print what a shell needs to complete commands, options, hosts and runs.

    Completion never contacts a host. Print it again after an update.
    """
    from .main import every_command

    name = options.shell or Path(os.environ.get("SHELL", "")).name
    if name not in _SHELLS:
        raise UsageError(
            f"no completion for the shell {name or '(none: SHELL is not set)'}", f"{FLAG.shell} bash, or zsh"
        )
    console.block(script(name, every_command()).splitlines())
    if console.asks:
        console.hint(command_of("completion", shell=name, more=_INSTALL[name]))
    return DONE


def script(shell: str, tasks: Iterable[Command]) -> str:
    """The completion script of a shell for these commands."""
    options = {str(task.name): _options(task) for task in tasks}
    return "\n".join(
        (
            f"# Completion of {_COMMANDS} for {shell}: `{command_of('completion', shell=shell)}` wrote this.",
            f"_muster_tasks() {{\n    printf '%s\\n' {' '.join(sorted(options))}\n}}",
            _cases("_muster_options", {task: sorted(names) for task, names in options.items()}),
            _cases("_muster_excluded", {pair: names for task in options for pair, names in _excluded(task).items()}),
            _cases("_muster_values", {task: sorted(n for n in names if names[n]) for task, names in options.items()}),
            Path(__file__).with_name("scripts").joinpath("completion.sh").read_text(encoding="utf-8"),
            _SHELLS[shell].replace("COMMANDS", _COMMANDS),
        )
    )


def _options(task: Command) -> dict[str, bool]:
    """A command's options, and whether each takes a value."""
    named = {each.opts[0]: not each.is_flag for each in task.params if isinstance(each, click.Option)}
    return {**named, "--help": False}


def _excluded(task: str) -> dict[str, list[str]]:
    """The options that each option excludes: `deploy,--slurm` has `--hosts`, and `deploy,--hosts` has `--slurm`."""
    names, excluded = {each.name for each in options_of(task)}, dict[str, list[str]]()
    for name, rule in rules_of(task):
        for other in names.intersection(rule.when.split("|")):
            for own, left in ((name, other), (other, name)):
                excluded.setdefault(f"{task},{flag_of(own)}", []).append(flag_of(left))
    return excluded


def _cases(name: str, words: dict[str, list[str]]) -> str:
    lines = [f"    {task}) echo {' '.join(names)} ;;" for task, names in sorted(words.items()) if names]
    return "\n".join((f"{name}() {{", "    case $1 in", *lines, "    esac", "}"))
