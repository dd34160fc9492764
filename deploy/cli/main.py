"""The list of commands, under two names: `fab` in the checkout, `muster` where it is installed (`pip install .`).

Each command is a function in another module of this package; add a new one to `_MODULES`.
"""

from __future__ import annotations

import os
import shlex
import sys
import textwrap
from collections.abc import Callable, Sequence
from functools import partial
from importlib import import_module
from importlib.metadata import version
from types import TracebackType

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.program import Program
from invoke.terminals import pty_size

from ..core.errors import UsageError
from ..core.program import FAB
from ..job.options import flag_of
from ..report.console import Console
from . import typos
from .command import Command

# The name of this package for pip; `muster` is another project there (docs/decisions/0021).
DISTRIBUTION = "muster-train"
_EXAMPLE = f"{FAB} deploy --hosts a,b -- train.py --lr 3e-4"
# The module of each command: only those whose names are typed are imported, in a third of the time for all.
_MODULES = {
    "agent": "agent",
    "attach": "runs",
    "bootstrap": "bootstrap",
    "clean": "clean",
    "compare": "compare",
    "completion": "completion",
    "deploy": "deploy",
    "down": "local",
    "exec": "within",
    "explain": "explain",
    "export": "export",
    "fetch": "runs",
    "gpus": "look",
    "join": "membership",
    "leave": "membership",
    "login": "login",
    "logs": "look",
    "port": "within",
    "preflight": "preflight",
    "push": "push",
    "report": "local",
    "runs": "local",
    "shell": "within",
    "status": "look",
    "stop": "runs",
    "tensorboard": "within",
    "trust": "trust",
    "unlock": "unlock",
    "up": "local",
    "why": "look",
}


def commands(typed: Sequence[str] = ()) -> Collection:
    """The commands whose names are among the typed words; all commands if there is none, as for `--list`."""
    names = _MODULES.keys() & set(typed) or _MODULES.keys()
    modules = [import_module(f".{name}", __package__) for name in sorted({_MODULES[name] for name in names})]
    tasks = [task for module in modules for task in vars(module).values() if isinstance(task, Command)]
    return Collection(*tasks)


class _Program(Program):
    def parse_core_args(self) -> None:
        """Parse the options before the task's name. Wrong usage ends with 2; invoke's own code would be 1."""
        _refusing(super().parse_core_args)

    def parse_tasks(self) -> None:
        """Parse the task and its options."""
        _refusing(super().parse_tasks)

    def parse_cleanup(self) -> None:
        """Show the help or the list, if asked to."""
        _refusing(super().parse_cleanup)

    def print_columns(self, tuples: Sequence[tuple[str, str | None]]) -> None:
        """Print the options, or the commands, with their help."""
        _print_columns(self, tuples)

    def print_help(self) -> None:
        """The commands, and the two options that stand before them."""
        print(f"Usage: {self.binary} COMMAND [--options]\n\n  {_EXAMPLE}\n")
        self.list_tasks()
        print(f"`{self.binary} COMMAND --help` shows its options; `{self.binary} --version` shows the version.")


def end_quietly_when_nobody_reads() -> None:
    """Let `fab --list | head` end without a traceback: the reader closed the pipe on purpose.

    This is for what invoke itself prints. In a run, Console notices the closed pipe and continues silently.
    """
    before = sys.excepthook

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, BrokenPipeError):
            before(kind, value, trace)
            return
        # The flush at the end would fail too.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())

    sys.excepthook = hook


def take_no_program_from_here() -> None:
    """Leave relative folders out of PATH: `ssh` of the current folder may be somebody else's program."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(place for place in places if os.path.isabs(place))


def main() -> None:
    """The console command `muster`; ends the process with the task's exit code."""
    end_quietly_when_nobody_reads()
    take_no_program_from_here()
    words = words_of(sys.argv[1:])
    program = _Program(version=version(DISTRIBUTION), namespace=commands(words), name="muster", binary="muster")
    program.run(["muster", *words])


def words_of(typed: Sequence[str]) -> list[str]:
    """The words for invoke, which takes none after `--`. Ends the process where they cannot be understood."""
    try:
        return with_script(typed)
    except UsageError as fault:
        Console().error(fault)
        sys.exit(fault.code)


def with_script(words: Sequence[str]) -> list[str]:
    """Turn the words after `--`, a script and its arguments, into the option --script of deploy or up.

    exec and shell read theirs themselves. Raises UsageError for another task, for --script beside it, and if nothing
    follows.
    """
    if "--" not in words:
        return list(words)
    at = list(words).index("--")
    if words[0] in ("exec", "shell"):
        return list(words[:at])
    options, script = list(words[:at]), list(words[at + 1 :])
    if options[:1] not in (["deploy"], ["up"], ["agent"], ["export"]):
        if options and options[0] not in _MODULES and not options[0].startswith("-"):
            raise typos.no_command(options[0], _MODULES, words)
        raise UsageError("only `deploy`, `up`, `agent` and `export` accept a script after --", _EXAMPLE)
    script_option = flag_of("script")
    if any(word.partition("=")[0] == script_option for word in options):
        raise UsageError(f"two scripts: one after --, one with {script_option}", f"give one of them: {_EXAMPLE}")
    if not script or script == ["-m"]:
        raise UsageError("no script after --", _EXAMPLE)
    return [*options, f"{script_option}={shlex.join(script)}"]


def refusing(program: Program) -> None:
    """Let fab's own program refuse unknown words, and print its help, as `muster` does."""
    for name in ("parse_tasks", "parse_cleanup"):
        setattr(program, name, partial(_refusing, getattr(program, name)))
    setattr(program, "print_columns", partial(_print_columns, program))  # noqa: B010


def _print_columns(program: Program, tuples: Sequence[tuple[str, str | None]]) -> None:
    """Print names and their help as invoke does, without line breaks at hyphens: `"--partition=a100"` can be copied."""
    indent, padding = program.leading_indent, " " * program.col_padding
    wide = max(len(name) for name, _ in tuples)
    width = pty_size()[0] - len(indent) - wide - len(padding) - 1
    for name, text in tuples:
        first, *more = textwrap.wrap(text or "", width, break_on_hyphens=False) or [""]
        print(f"{indent}{name:{wide}}{padding}{first}".rstrip())
        for line in more:
            print(f"{indent}{'':{wide}}{padding}{line}")
    print()


def _refusing(parse: Callable[[], None]) -> None:
    try:
        parse()
    except ParseError as fault:
        context = fault.context
        task = (context.name if context else "") or ""
        options = [flag for flag in (context.flags if context else ()) if flag.startswith("--")]
        typed = sys.argv[1:]
        refused = typos.refusal(str(fault), task, options, _MODULES.keys(), typed)
        raise Exit(f"error: {refused.message}\nhint: {refused.hint}", refused.code) from fault
