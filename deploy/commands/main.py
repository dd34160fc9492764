"""The tree of commands: `muster`, and the tasks of `fab` in the checkout.

Each command is a function in another module of this package; add a new command to `_GROUPS`.
"""

from __future__ import annotations

import atexit
import io
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module
from types import TracebackType
from typing import TextIO

import click

from ..core import program as command_line
from ..core.errors import STOPPED, UsageError, from_os_error
from ..job.option_words import command_of, without_values
from . import typos
from .command import Command, Context

# The name of this package for pip; on PyPI, `muster` is another project (docs/decisions/0021).
DISTRIBUTION = "muster-train"
_EXAMPLE = command_of("deploy", hosts="a,b", more="train.py --lr 3e-4")
# For each section of the help, the modules and their commands. Only the typed command's module is imported.
_GROUPS: dict[str, dict[str, tuple[str, ...]]] = {
    "Start": {"start": ("up", "deploy", "ray", "resume", "demo")},
    "Look": {
        "look": ("status", "logs", "why", "gpus", "runs", "board", "report", "compare", "docs"),
        "within": ("tensorboard",),
    },
    "Act": {"act": ("attach", "stop", "fetch", "down"), "within": ("exec", "shell", "port")},
    "Check": {"check": ("preflight", "explain")},
    "Hosts": {"hosts": ("bootstrap", "login", "trust", "push", "clean", "unlock")},
    "Advanced": {"act": ("leave", "join"), "start": ("agent", "export"), "completion": ("completion",)},
}
_HOMES = {name: module for group in _GROUPS.values() for module, names in group.items() for name in names}


class Tree(click.Group):
    """All commands. A command's module is imported only when needed: importing all of them takes half a second."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return sorted(_HOMES)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> Command | None:
        """The command with that name; None if there is none."""
        if cmd_name not in _HOMES:
            return None
        module = import_module(f".{_HOMES[cmd_name]}", __package__)
        return next(each for each in vars(module).values() if isinstance(each, Command) and each.name == cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the commands in their sections, and the options that come before a command."""
        formatter.write(f"Usage: muster COMMAND [--options]\n\n  {_EXAMPLE}\n")
        known = {each.name: each.short_help or "" for each in every_command()}
        wide = max(map(len, _HOMES))
        for title, group in _GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(f"{name:{wide}}", known[name]) for names in group.values() for name in names])
        formatter.write("\n`muster COMMAND --help` shows its options, `muster docs` lists the how-to pages,\n")
        formatter.write("`muster --version` shows the version.\n")


def _show_version(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        from importlib.metadata import PackageNotFoundError, version

        words = "of a checkout"
        with suppress(PackageNotFoundError):
            words = version(DISTRIBUTION)
        click.echo(f"muster {words}")
        ctx.exit()


_VERSION = click.Option(["--version", "-V"], is_flag=True, is_eager=True, expose_value=False, callback=_show_version)
TREE = Tree(
    "muster",
    params=[_VERSION],
    context_settings={"help_option_names": ["-h", "--help", "-l", "--list"], "max_content_width": 120},
)


def every_command() -> list[Command]:
    """All commands of the tree."""
    return [each for name in sorted(_HOMES) if (each := TREE.get_command(None, name))]


def run(typed: Sequence[str]) -> int:
    """Run a command line (the words after the program's name), and return its exit code."""
    words = list(typed) or ["--help"]
    words[0] = {"help": "--help", "version": "--version", "-v": "--version"}.get(words[0], words[0])
    if words[1:] and words[0] in ("--help", "-h"):
        words = [words[1], words[0], *words[2:]]
    try:
        _refuse_removed_folder()
        with TREE.make_context("muster", list(words), obj=words) as context:
            code: int = TREE.invoke(context) or 0
            return code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as fault:
        refused = _refused(fault, words)
    except UsageError as fault:
        refused = fault
    finally:
        command_line.BEFORE.clear()  # these are about this command line only
        command_line.READ_AS_HOSTS.clear()
    from ..report.console import Console

    Console().error(refused)
    return refused.code


def _refuse_removed_folder() -> None:
    """Raise UsageError if the current folder was removed: no relative path works there."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UsageError("the folder that you are in was removed", 'if it exists again: cd "$PWD"') from None


def end_quietly_when_nobody_reads() -> None:
    """Let `muster --list | head` end without a traceback: the reader closed the pipe on purpose.

    Other write errors, such as a full disk, are reported. This is for what click prints: during a run, Console notices
    the closed pipe and continues silently.
    """
    before = sys.excepthook
    atexit.register(_drop_unread)

    def hook(kind: type[BaseException], value: BaseException, trace: TracebackType | None) -> None:
        if isinstance(value, OSError) and (refused := from_os_error(value, "standard output")):
            from ..report.console import Console

            Console().error(refused)
        elif not issubclass(kind, BrokenPipeError):
            before(kind, value, trace)
            return
        _drop(sys.stdout)

    sys.excepthook = hook


def _drop_unread() -> None:
    """Flush the output streams, and drop what cannot be written.

    Python itself would flush at exit, print an exception, and change the exit code to 120. The code that wrote the
    output has met the same error already, and decided what it means.
    """
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:
            _drop(stream)


def _drop(stream: TextIO) -> None:
    """Redirect a stream to /dev/null: what it still holds is lost."""
    os.dup2(os.open(os.devnull, os.O_RDWR), stream.fileno())


def take_no_program_from_here() -> None:
    """Remove relative folders from PATH: `ssh` in the current folder may be somebody else's program."""
    places = os.environ.get("PATH", os.defpath).split(os.pathsep)
    os.environ["PATH"] = os.pathsep.join(place for place in places if os.path.isabs(place))


def main() -> None:
    """The console command `muster`; ends the process with the command's exit code."""
    for name in ("stdin", "stdout", "stderr"):
        if not (stream := getattr(sys, name)):  # closed: the next opened file would get its descriptor number
            setattr(sys, name, open(os.devnull, "r+"))  # noqa: SIM115 (open until the process ends)
        elif name != "stdin" and isinstance(stream, io.TextIOWrapper):  # escape what the terminal cannot encode
            stream.reconfigure(errors="backslashreplace")
    end_quietly_when_nobody_reads()
    take_no_program_from_here()
    try:
        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:  # Ctrl-C while a command's modules are loaded, which takes up to a second
        sys.exit(STOPPED)


def _refused(fault: click.UsageError, typed: Sequence[str]) -> UsageError:
    """Turn an error from click into Muster's words, with what the user may have meant."""
    command = fault.ctx.command if fault.ctx else TREE
    task = "" if command is TREE else command.name or ""
    if isinstance(fault, click.NoSuchOption):
        options = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
        return typos.refusal(fault.option_name, task, options, _HOMES, without_values(typed))
    if isinstance(fault, click.exceptions.NoSuchCommand):
        return typos.no_command(fault.command_name, _HOMES, without_values(typed), _refusal_of)
    words = fault.format_message()
    if isinstance(fault, click.MissingParameter) and fault.param:
        words = f"{task}: {fault.param.human_readable_name} is missing"
    elif isinstance(fault, click.BadOptionUsage):
        words = f"{fault.option_name}: {'its value is missing' if 'requires' in words else 'it takes no value'}"
    return UsageError(words, f"muster {task} --help" if task else "muster --help")


def _refusal_of(words: Sequence[str]) -> UsageError | None:
    """The error that a command line would get; None if it would be accepted."""
    name, *rest = words
    command = TREE.get_command(None, name)
    if command is None or {"-h", "--help", "--help-all"} & set(rest):
        return None
    try:
        command.make_context(name, list(rest), obj=list(words))
    except click.UsageError as fault:
        return _refused(fault, words)
    except UsageError as fault:
        return fault
    return None
