"""The list of commands, under two names: `fab` in the checkout, `muster` where it is installed (`pip install .`).

Each command is a function in another module of this package; register a new one here.
"""

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Callable, Sequence
from functools import partial
from importlib.metadata import version
from types import TracebackType

from invoke.collection import Collection
from invoke.exceptions import Exit, ParseError
from invoke.program import Program

from ..core.errors import UsageError
from ..core.program import FAB
from ..report.console import Console
from . import (
    agent,
    bootstrap,
    clean,
    compare,
    completion,
    drill,
    explain,
    export,
    local,
    login,
    look,
    preflight,
    runs,
    typos,
    within,
)

# The name of this package for pip; `muster` is another project there (docs/decisions/0021).
DISTRIBUTION = "muster-train"
_EXAMPLE = f"{FAB} deploy --hosts a,b -- train.py --lr 3e-4"
_TASKS = (
    *(
        agent.agent,
        runs.attach,
        bootstrap.bootstrap,
        clean.clean,
        compare.compare,
        completion.completion,
        runs.deploy,
        drill.drill_task,
        runs.fetch,
        explain.explain_task,
        export.export,
        login.login_task,
        look.gpus,
        look.logs,
        look.status,
        look.why,
        within.exec_task,
        within.port,
        within.shell,
        within.tensorboard,
    ),
    *(runs.push, preflight.preflight, runs.stop, runs.trust, runs.unlock),
    *(local.down, local.report, local.runs, local.up),
)
namespace = Collection(*_TASKS)


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


def main() -> None:
    """The console command `muster`; ends the process with the task's exit code."""
    end_quietly_when_nobody_reads()
    words = words_of(sys.argv[1:])
    program = _Program(version=version(DISTRIBUTION), namespace=namespace, name="muster", binary="muster")
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
        raise UsageError("only `deploy`, `up`, `agent` and `export` accept a script after --", _EXAMPLE)
    if any(word == "--script" or word.startswith("--script=") for word in options):
        raise UsageError("two scripts: one after --, one with --script", f"give one of them: {_EXAMPLE}")
    if not script or script == ["-m"]:
        raise UsageError("no script after --", _EXAMPLE)
    return [*options, f"--script={shlex.join(script)}"]


def refusing(program: Program) -> None:
    """Let fab's own program refuse a word that it does not know as `muster` does."""
    for name in ("parse_tasks", "parse_cleanup"):
        setattr(program, name, partial(_refusing, getattr(program, name)))


def _refusing(parse: Callable[[], None]) -> None:
    try:
        parse()
    except ParseError as fault:
        context = fault.context
        task = (context.name if context else "") or ""
        options = [flag for flag in (context.flags if context else ()) if flag.startswith("--")]
        hidden = {f"--{name}" for known in _TASKS if known.name == task for name in known.hidden}
        shown = [option for option in options if option not in hidden]
        typed = sys.argv[1 : sys.argv.index("--") if "--" in sys.argv else None]
        refused = typos.refusal(str(fault), task, shown, namespace.task_names, typed)
        raise Exit(f"error: {refused.message}\nhint: {refused.hint}", refused.code) from fault
