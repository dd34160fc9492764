"""The commands as tasks of `fab`: one for each, which hands on the words behind its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fabric import main
from fabric.tasks import Task
from invoke.exceptions import Exit

from ..core.errors import UsageError
from ..job.again import command_of
from ..job.options import FLAG
from ..report.console import Console
from .command import Command
from .main import TREE, every_command, run

# By command, the words that were typed for it. invoke copies tasks, and their attributes with them.
_TYPED: dict[str, list[str]] = {}


class CommandTask(Task):  # type: ignore[misc]
    """A command as a task. invoke reads its name alone: the words behind it are the tree's."""

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
        """None; but before invoke reads the command line, take the words that are this command's out of it."""
        core: Any = getattr(main.program, "core", None)
        unparsed = core.unparsed if core else []
        # A value of another task's option is no task.
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
    """Each command as a task, for a fabfile that has others."""
    return [CommandTask(each) for each in every_command()]


def tasks_of(typed: Sequence[str]) -> Iterator[Task]:
    """The task of the command that is typed, or each for `fab --list`: for a fabfile that has no others.

    `typed`: what stands behind the program's name. Ends the process where they are no command's words, or ask for help.
    """
    core: Any = getattr(main.program, "core", None)
    asked = core[0].args.help.value if core else None
    words = [asked, "--help"] if isinstance(asked, str) else [*core.unparsed] if core else []
    known = TREE.get_command(None, words[0]) if words else None
    if core and (isinstance(asked, str) or not (known or core[0].args.list.value)):
        # fab has taken away what stands behind `--`.
        sys.exit(run([*words, *(typed[list(typed).index("--") :] if words and "--" in typed else [])]))
    yield from [CommandTask(known)] if known else tasks()
