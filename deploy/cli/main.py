"""The tree of commands, under two names: `fab` in the checkout, `muster` where it is installed (`pip install .`).

Each command is a function in another module of this package; add a new one to `_MODULES`.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Sequence
from importlib import import_module
from types import TracebackType

import click

from ..core.errors import UsageError
from ..core.program import FAB
from ..job.options import flag_of
from ..report.console import Console
from . import typos
from .command import Command, Context

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


class Tree(click.Group):
    """All commands. A command's module is imported where it is typed: all of them take half a second."""

    context_class = Context

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names of the commands."""
        return sorted(_MODULES)

    def get_command(self, ctx: click.Context | None, cmd_name: str) -> Command | None:
        """The command of that name; None if there is none."""
        if cmd_name not in _MODULES:
            return None
        module = import_module(f".{_MODULES[cmd_name]}", __package__)
        return next(each for each in vars(module).values() if isinstance(each, Command) and each.name == cmd_name)

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The commands, and the options that stand before them."""
        formatter.write(f"Usage: {FAB} COMMAND [--options]\n\n  {_EXAMPLE}\n\n")
        formatter.indent()
        formatter.write_dl([(each.name or "", each.short_help or "") for each in every_command()])
        formatter.write(f"\n`{FAB} COMMAND --help` shows its options; `{FAB} --version` shows the version.\n")


def _show_list(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        click.echo(ctx.get_help())
        ctx.exit()


TREE = click.version_option(package_name=DISTRIBUTION, prog_name="muster", message="%(prog)s %(version)s")(
    Tree(
        "muster",
        params=[click.Option(["--list", "-l"], is_flag=True, is_eager=True, expose_value=False, callback=_show_list)],
        context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 120},
    )
)


def every_command() -> list[Command]:
    """Each command of the tree."""
    return [each for name in sorted(_MODULES) if (each := TREE.get_command(None, name))]


def run(typed: Sequence[str]) -> int:
    """Do what these words say, as they were typed behind the program's name. Returns the exit code."""
    words = list(typed) or ["--list"]
    if words[1:] and words[0] in ("--help", "-h"):
        words = [words[1], words[0], *words[2:]]
    try:
        with TREE.make_context(FAB, with_script(words), obj=words) as context:
            code: int = TREE.invoke(context) or 0
            return code
    except click.exceptions.Exit as end:
        return end.exit_code
    except click.UsageError as fault:
        refused = _refused(fault, words)
    except UsageError as fault:
        refused = fault
    Console().error(refused)
    return refused.code


def end_quietly_when_nobody_reads() -> None:
    """Let `fab --list | head` end without a traceback: the reader closed the pipe on purpose.

    This is for what click prints. In a run, Console notices the closed pipe and continues silently.
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
    """The console command `muster`; ends the process with the command's exit code."""
    end_quietly_when_nobody_reads()
    take_no_program_from_here()
    sys.exit(run(sys.argv[1:]))


def with_script(words: Sequence[str]) -> list[str]:
    """Turn the words after `--`, a script and its arguments, into the option --script of deploy or up.

    exec and shell get theirs as they are (`takes_more`). Raises UsageError for another task, for --script beside it,
    and if nothing follows.
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


def _refused(fault: click.UsageError, typed: Sequence[str]) -> UsageError:
    """What click refuses, in our words, with what its user may have meant."""
    command = fault.ctx.command if fault.ctx else TREE
    task = "" if command is TREE else command.name or ""
    if isinstance(fault, click.NoSuchOption):
        options = [flag for each in command.params for flag in each.opts if flag.startswith("--")]
        return typos.refusal(fault.option_name, task, options, _MODULES, typed)
    if isinstance(fault, click.exceptions.NoSuchCommand):
        return typos.no_command(fault.command_name, _MODULES, typed)
    return UsageError(fault.format_message(), f"{FAB} --help {task}" if task else f"{FAB} --list")
