"""`@command`: a command of the tree, made of a function, the rows that the table of options has for it, and its help.

The help has one form for all: what it does, an example, the exit codes, the options with their defaults.
"""

from __future__ import annotations

import inspect
import re
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import Field, fields
from itertools import pairwise
from typing import Any

import click

from ..core.errors import DONE, FAILED, STOPPED, USAGE, DeployError
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
_WIDEST, _NO_BREAK = 120, "\u2011"


class HelpFormatter(click.HelpFormatter):
    """Breaks no line at a hyphen: `"--partition=a100"` can be copied from the screen."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 24, col_spacing: int = 2) -> None:
        """Names, and what each means beside it, or below it where the name is long."""
        super().write_dl([(name, text.replace("-", _NO_BREAK)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """All of it."""
        return super().getvalue().replace(_NO_BREAK, "-")


class Context(click.Context):
    """A command line that is read; its `obj` is what was typed, with the words behind `--`."""

    formatter_class = HelpFormatter


class Command(click.Command):
    """A command that opens the door to what a folder asks for (job/consent.py), and returns its exit code."""

    context_class = Context

    def __init__(
        self, name: str, work: Callable[..., int], doc: str, words: Mapping[str, str], takes_more: bool
    ) -> None:
        own = [_argument(word, text) for word, text in words.items()]
        # An unknown word is refused before what follows it: `deploy train.py --lr 3` is about the script.
        reads = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST, "allow_extra_args": True,
                 "allow_interspersed_args": bool(own)}  # fmt: skip
        rows = [_option(each, name) for each in table.options_of(name)]
        first = doc.partition("\n")[0]
        super().__init__(name, context_settings=reads, params=[*own, *rows], help=doc, short_help=first)
        self.work, self._takes_more = work, takes_more

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Read the words. Raises click.UsageError, also for an option in the place of another one's value."""
        flags = {flag: each for each in self.get_params(ctx) for flag in each.opts}
        for flag, value in pairwise(args):
            each = flags.get(flag)
            if value in flags and isinstance(each, click.Option) and not each.is_flag:
                raise click.BadOptionUsage(flag, f"Option {flag!r} requires an argument.", ctx)
        try:
            left = super().parse_args(ctx, args)
        except click.UsageError as fault:
            fault.ctx = ctx  # its parser does not say whose option it is
            raise
        if left:
            raise click.NoSuchOption(left[0], ctx=ctx)
        return left

    def invoke(self, ctx: click.Context) -> int:
        """Do its work."""
        given, typed = dict(ctx.params), list(ctx.find_root().obj or ())
        allow = given.pop("allow_folder", False)
        names = {each.name for each in table.options_of(self.name or "")}
        options = read_options({name: given.pop(name) for name in names & given.keys()})
        if self._takes_more:
            given["words"] = typed[typed.index("--") + 1 :] if "--" in typed else []
        how = shlex.join([*FAB.split(), *typed[:1], table.flag_of("allow_folder"), *typed[1:]])
        console = Console(options.json)
        with consent.asking(consent.Door(lambda: self.asker(options.json), allow, how)):
            return code_of(console, lambda: self.work(options, console, **given))

    def asker(self, as_json: bool) -> Console:
        """Where the door shows and asks."""
        return Console(as_json)

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """What it does, the example and the exit codes, as they are written."""
        formatter.write(f"\n{textwrap.indent(self.help or '', '  ')}\n")


def command(
    example: str | Sequence[str],
    codes: Mapping[int, str],
    words: Mapping[str, str] | None = None,
    klass: type[Command] = Command,
    name: str = "",
    takes_more: bool = False,
) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command, which ends with the exit code that it returns.

    The function gets the options which the table has for this command, a console, and the words of its own, which are
    no options. `words`: what each of these means; one whose name ends with `...` is several. `takes_more`: it gets what
    stands behind `--`, too. `codes`: what its exit codes mean, if MEANINGS does not say it.

    Options have no one-letter forms: a new option would change the meaning of an old letter.
    """
    examples = [example] if isinstance(example, str) else example

    def made(work: Callable[..., int]) -> Command:
        doc = _doc(work.__doc__ or "", examples, {**MEANINGS, **codes})
        return klass(name or work.__name__, work, doc, words or {}, takes_more)

    return made


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


def read_options(given: Mapping[str, Any]) -> Options:
    """The options of a command line, as click gives them: a text, several, or a switch."""
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


def _option(each: Field[Any], takes: str) -> click.Option:
    row, switch, takes = table.row_of(each), each.default is False, table.like(takes)
    several = each.default == () and row.single != takes
    start = () if several else False if switch else ""
    return click.Option(
        [table.flag_of(each.name)], is_flag=switch, multiple=several, default=start, help=row.helps[takes]
    )


def _argument(word: str, text: str) -> click.Argument:
    return click.Argument([word.removesuffix("...")], nargs=-1 if word.endswith("...") else 1, required=True, help=text)


def _doc(doc: str, examples: Sequence[str], codes: Mapping[int, str]) -> str:
    """The docstring with the example and the exit codes below it."""
    shown = [f"  {example}" for example in examples]
    ends = [
        textwrap.fill(meaning, 76, initial_indent=f"  {code:>2}  ", subsequent_indent=" " * 6, break_on_hyphens=False)
        for code, meaning in sorted(codes.items())
    ]
    doc = re.sub(r"\bfab (?=[a-z])", f"{FAB} ", inspect.cleandoc(doc))
    return "\n".join([doc, "", "Example:", *shown, "", "Exit codes:", *ends])
