"""The commands as tasks of `fab`: each task passes on the words after its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fabric import main
from fabric.tasks import Task
from invoke.exceptions import Exit

from ..core.errors import UsageError
from ..job.option_words import command_of
from ..job.options import FLAG
from ..report.console import Console
from .command import Command
from .main import TREE, every_command, run

# The words typed for each command. They are kept here because invoke copies tasks with their attributes.
_TYPED: dict[str, list[str]] = {}


class CommandTask(Task):  # type: ignore[misc]
    """A command as a task. invoke reads only the task's name; Muster's own parser reads the words after it."""

    def __init__(self, each: Command) -> None:
        name = str(each.name)

        def body(context: Any) -> None:
            # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
            if getattr(context, "host", None):
                fault = UsageError(
                    f"{FLAG.hosts} must follow the task's name", f"for example: {command_of(name, hosts='a,b')}"
                )
                Console().error(fault)
                raise Exit(code=fault.code)
            if code := run(_TYPED.get(name, [name])):
                raise Exit(code=code)

        body.__doc__ = each.short_help
        super().__init__(body, name=name, auto_shortflags=False)

    def get_arguments(self, *args: Any, **more: Any) -> Any:
        """Take this command's words out of the command line before invoke reads it; for invoke, it has no arguments."""
        core: Any = getattr(main.program, "core", None)
        unparsed = core.unparsed if core else []
        # A word after an option is that option's value, not a task.
        at = next((at for at, word in enumerate(unparsed) if word.rpartition(".")[2] == self.name
                   and not (at and unparsed[at - 1].startswith("-"))), len(unparsed))  # fmt: skip
        if unparsed[at + 1 :] or (unparsed[at:] and core.remainder):
            typed = sys.argv[1:]
            behind = typed[typed.index("--") :] if "--" in typed else []
            _TYPED[self.name] = [self.name, *unparsed[at + 1 :], *behind]
            # fab itself would run the words after `--` on its own hosts.
            unparsed[at + 1 :], core.remainder = [], ""
        return super().get_arguments(*args, **more)


def tasks() -> list[CommandTask]:
    """Each command as a task, for a fabfile that also has other tasks."""
    return [CommandTask(each) for each in every_command()]


def tasks_of(typed: Sequence[str]) -> Iterator[Task]:
    """The task of the typed command, or all tasks for `fab --list`: for a fabfile that has no other tasks.

    `typed`: the words after the program's name. If they are not a command, or ask for help, this answers that and ends
    the process.
    """
    core: Any = getattr(main.program, "core", None)
    asked = core[0].args.help.value if core else None
    words = [asked, "--help"] if isinstance(asked, str) else [*core.unparsed] if core else []
    known = TREE.get_command(None, words[0]) if words else None
    if core and (isinstance(asked, str) or not (known or core[0].args.list.value)):
        # fab has removed the words after `--`: add them again.
        sys.exit(run([*words, *(typed[list(typed).index("--") :] if words and "--" in typed else [])]))
    yield from [CommandTask(known)] if known else tasks()
