"""The commands as tasks of `fab`: one for each, which hands on the words behind its name."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from typing import Any

from fabric.tasks import Task
from invoke.exceptions import Exit
from invoke.program import Program

from ..core.errors import UsageError
from ..job.again import command_of
from ..job.options import FLAG
from ..report.console import Console
from .command import Command
from .main import TREE, every_command, run


def tasks_of(program: Program | None, typed: Sequence[str]) -> Iterator[Task]:
    """The task of the command that is typed, or each if there is none, as for `fab --list`.

    `typed`: what stands behind the program's name. Ends the process where they are no command's words, or ask for help.
    """
    core: Any = getattr(program, "core", None)
    words = [*core.unparsed] if core else []
    # fab itself would run the words after `--` on its own hosts.
    words += typed[list(typed).index("--") :] if words and "--" in typed else []
    asked = core[0].args.help.value if core else None
    if isinstance(asked, str):
        words = [asked, "--help"]
    if core and not (words or core[0].args.list.value):
        sys.exit(run([]))
    if not words:
        yield from (_task_of(each, []) for each in every_command())
    elif isinstance(asked, str) or not (known := TREE.get_command(None, words[0])):
        sys.exit(run(words))
    else:
        # invoke reads the name alone: the options are the tree's.
        core.unparsed[:], core.remainder = words[:1], ""
        yield _task_of(known, words)


def _task_of(each: Command, words: Sequence[str]) -> Task:
    def body(context: Any) -> None:
        # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
        if getattr(context, "host", None):
            again = command_of(each.name or "", hosts="a,b")
            fault = UsageError(f"{FLAG.hosts} must follow the task's name", f"for example: {again}")
            Console().error(fault)
            raise Exit(code=fault.code)
        raise Exit(code=run(words or [each.name or ""]))

    body.__doc__ = each.short_help
    return Task(body, name=each.name, auto_shortflags=False)
