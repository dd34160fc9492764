"""`@command`: a fab task whose --help shows an example, the defaults and the exit codes, in one form for all.

invoke prints a task's docstring above its options: `command` writes the example and the codes into it.
"""

from __future__ import annotations

import inspect
import re
import shlex
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import Field, fields
from functools import wraps
from typing import Any

from fabric import task
from fabric.tasks import Task
from invoke.exceptions import Exit
from invoke.parser.argument import Argument

from ..core.errors import DONE, FAILED, STOPPED, USAGE, DeployError, UsageError
from ..core.program import FAB
from ..job import consent
from ..job import options as table
from ..job.options import Options
from ..report.console import Console

# The meaning of a code if the command gives none of its own. Every command can end with each of these.
MEANINGS = {
    DONE: "done",
    FAILED: "something failed: the error names it, and the host",
    USAGE: "an option or a file was refused: nothing was changed",
    STOPPED: "stopped by Ctrl-C",
}
_KEYWORD = inspect.Parameter.KEYWORD_ONLY
_WIDTH = 76  # of 80 columns, less invoke's own indent


class Command(Task):  # type: ignore[misc]
    """A task that opens the door to what a folder asks for (job/consent.py)."""

    help: dict[str, Any]

    def __call__(self, *args: Any, allow_folder: bool = False, **given: Any) -> Any:
        """Do the task's work."""
        typed = sys.argv[2:] if sys.argv[1:2] == [self.name] else []
        how = shlex.join([*FAB.split(), self.name, table.flag_of("allow_folder"), *typed])
        with consent.asking(consent.Door(lambda: self.asker(bool(given.get("json"))), allow_folder, how)):
            return super().__call__(*args, **given)

    def asker(self, as_json: bool) -> Console:
        """Where the door shows and asks."""
        return Console(as_json)

    def get_arguments(self, ignore_unknown_help: bool | None = None) -> list[Argument]:
        """The options of the command line."""
        help = dict(self.help)
        arguments: list[Argument] = super().get_arguments(ignore_unknown_help)
        self.help = help  # invoke removes an option from this list once it has shown it
        if {"--help", "-h"} & set(sys.argv[1:]):
            for argument in arguments:
                if argument.positional:
                    argument.default = ""  # else invoke asks for the word before it shows the help
        return arguments


def command(
    example: str | Sequence[str],
    codes: Mapping[int, str],
    help: Mapping[str, str] | None = None,
    klass: type[Command] = Command,
    **more: Any,
) -> Callable[[Callable[..., int]], Command]:
    """Make a function a task, which ends with the exit code that it returns.

    The function gets the options which the table has for this command, a console, and the words of its own, which are
    no options (`help`). `codes`: what its exit codes mean, if MEANINGS does not say it.

    Options have no one-letter forms: invoke would assign letters by the order of the parameters, so a new option would
    change the meaning of an old letter.
    """
    examples = [example] if isinstance(example, str) else example

    def made(work: Callable[..., int]) -> Command:
        name = str(more.get("name", work.__name__))
        body = _body_of(work, name)
        body.__doc__ = _doc(work.__doc__ or "", examples, {**MEANINGS, **codes})
        made_task: Command = task(
            klass=klass,
            help={**table.help_of(name), **(help or {})},
            auto_shortflags=False,
            iterable=[each.name for each in table.options_of(name) if _start(each, name) is None],
            **more,
        )(body)
        return made_task

    return made


def _body_of(work: Callable[..., int], name: str) -> Callable[..., None]:
    """What invoke calls: its parameters are the words of a command's own, and the options that the table has for it."""
    options = table.options_of(name)

    @wraps(work)
    def body(context: Any, **given: Any) -> None:
        asked = _read({each.name: given.pop(each.name) for each in options if each.name in given})
        console = Console(asked.json)

        def once() -> int:
            # `fab --hosts a,b deploy` calls the task once for each host: N deploys where one was meant.
            if getattr(context, "host", None):
                raise UsageError("--hosts must follow the task's name", f"for example: {FAB} {name} --hosts a,b")
            return work(asked, console, **given)

        raise Exit(code=code_of(console, once))

    _, _, *own = inspect.signature(work).parameters.values()
    words = [each.replace(kind=_KEYWORD) for each in own if each.kind != inspect.Parameter.VAR_KEYWORD]
    more = [inspect.Parameter(each.name, _KEYWORD, default=_start(each, name)) for each in options]
    context = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    body.__signature__ = inspect.Signature([context, *words, *more])  # type: ignore[attr-defined]
    return body


def code_of(console: Console, work: Callable[[], int]) -> int:
    """Do the work; its exit code, or that of its fault: 0 done, 1 failed, 2 wrong usage, 75 stopped."""
    try:
        return work()
    except DeployError as fault:
        console.error(fault)
        return fault.code
    except KeyboardInterrupt as stop:
        message = str(stop) or "stopped"
        console.warn(message)
        console.data({"kind": "stopped", "message": message})
        return STOPPED


def _start(each: Field[Any], takes: str) -> Any:
    """What an option of a command holds before anything is typed, for invoke: None where it is several texts."""
    if each.default == ():
        return "" if table.row_of(each).single == takes else None
    return each.default


def _read(given: Mapping[str, Any]) -> Options:
    """The options of a command line, as invoke gives them: lists, or None where nothing was typed."""
    values = dict(given)
    for each in fields(Options):
        if each.default == () and each.name in values:
            texts = values[each.name] or ()
            texts = (texts,) if isinstance(texts, str) else texts
            several = table.row_of(each).commas
            values[each.name] = tuple(
                part for text in texts for part in (text.split(",") if several else [text]) if part or not several
            )
    return Options(**values)


def _doc(doc: str, examples: Sequence[str], codes: Mapping[int, str]) -> str:
    """The docstring with the example and the exit codes below it."""
    shown = [f"  {example}" for example in examples]
    ends = [
        textwrap.fill(
            meaning, _WIDTH, initial_indent=f"  {code:>2}  ", subsequent_indent=" " * 6, break_on_hyphens=False
        )
        for code, meaning in sorted(codes.items())
    ]
    doc = re.sub(r"\bfab (?=[a-z])", f"{FAB} ", inspect.cleandoc(doc))
    return "\n".join([doc, "", "Example:", *shown, "", "Exit codes:", *ends])
