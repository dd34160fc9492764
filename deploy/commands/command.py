"""`@command` makes a function a command, with its options, help and exit codes, and finds where a script begins.

The help of every command has the same form: what it does, an example, the exit codes, the options with defaults.
"""

from __future__ import annotations

import inspect
import shlex
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import Field, fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import click

from ..core import program as command_line
from ..core.errors import DONE, FAILED, STOPPED, USAGE, DeployError, UsageError, from_os_error
from ..job import consent
from ..job import options as table
from ..job.option_words import refuse_blank, without_values
from ..job.options import FLAG, Options
from . import typos

if TYPE_CHECKING:
    from ..report.console import Console

# The meaning of each exit code, unless the command has its own. Every command can end with each of these codes.
MEANINGS = {
    DONE: "done",
    FAILED: "something failed: the error names it, and the host",
    USAGE: "an option or a file was refused: nothing was changed",
    STOPPED: "stopped by Ctrl-C",
}
_WIDEST, _NO_BREAK = 120, "\u2011"
# Commands that look at hosts or runs, and do not read from the terminal meanwhile.
_ASKING = frozenset(["status", "gpus", "logs", "why", "runs", "fetch", "clean", "unlock", "leave", "join", "down"])
# With --json, this command writes a single object; notes about what a folder asks for go only to standard error.
_ONE_OBJECT = "preflight"
# A command with more options than this shows only the most important ones on the first screen of its help.
_MANY = 14


class HelpFormatter(click.HelpFormatter):
    """A help formatter that breaks no line at a hyphen: `"--partition=a100"` can be copied from the screen."""

    def write_dl(self, rows: Iterable[tuple[str, str]], col_max: int = 24, col_spacing: int = 2) -> None:
        """Write each name with its meaning next to it, or below it if the name is long."""
        super().write_dl([(name, text.replace("-", _NO_BREAK)) for name, text in rows], col_max, col_spacing)

    def getvalue(self) -> str:
        """The whole help, with ordinary hyphens again."""
        return super().getvalue().replace(_NO_BREAK, "-")


class Context(click.Context):
    """A command line while it is parsed; its `obj` has all typed words, including those after `--`."""

    formatter_class = HelpFormatter


class Command(click.Command):
    """A command of the tree: it parses its words, does its work, and returns its exit code.

    While it works, a `ConsentGate` asks the user to allow anything that a folder asks for (job/consent.py).

    The words after the options are the program to run, or the run and the hosts that the command applies to.
    """

    context_class = Context

    def __init__(
        self, name: str, work: Callable[..., int], doc: str, words: Mapping[str, str], takes_more: bool, place: str
    ) -> None:
        own = [_argument(word, text) for word, text in words.items()]
        rows = table.options_of(name)
        names = {each.name for each in rows}
        self.work, self._runs_script, self._takes_more = work, "script" in names, takes_more
        # The options that a word without a dash may set.
        self._bare = () if self._runs_script else tuple(each for each in (place, "run", "hosts") if each in names)
        reads = {"help_option_names": ["-h", "--help"], "max_content_width": _WIDEST, "allow_extra_args": True,
                 "allow_interspersed_args": not (self._runs_script or takes_more)}  # fmt: skip
        self._is_long = len(rows) > _MANY
        options = [_option(each, name) for each in rows]
        first = doc.partition("\n")[0]
        super().__init__(name, context_settings=reads, params=[*own, *options], help=doc, short_help=first)

    def collect_usage_pieces(self, ctx: click.Context) -> list[str]:
        """What may follow the command's name, in the order of typing."""
        places = [f"[{'|'.join(self._bare).upper()}]"] * bool(self._bare)
        program = ["SCRIPT [ARGS]..."] * self._runs_script + ["COMMAND [ARGS]..."] * self._takes_more
        return [*super().collect_usage_pieces(ctx), *places, *program]

    def split(self, ctx: click.Context, args: Sequence[str]) -> tuple[list[str], list[str]]:
        """Split the words into options, including those that words without a dash set, and the program after them."""
        given, own, left = self._cut(ctx, args)
        hosts, places = ",".join(given.get("hosts") or ()), []
        if self._takes_more and left and own[-1:] != ["--"]:
            typos.refuse_hosts_apart(hosts, left[:1])
            is_place = self.name == "shell" or left[1:2] == ["--"] or typos.is_place(left[0])
            places = left[:is_place]
            given, own, left = self._cut(ctx, [*own, *left[1:]]) if places else (given, own, left)
        elif ctx.allow_interspersed_args:
            typos.refuse_hosts_apart(hosts, left)
            places, left = left, []
        _refuse_blank_words(self.name, places)
        pairs = typos.options_of(places, self._bare, given)
        command_line.READ_AS_HOSTS.update(pairs.get("hosts", "").split(",") if "run" in self._bare else ())
        if "" in pairs:
            raise click.NoSuchOption(pairs[""], ctx=ctx)
        return [*(word for name, text in pairs.items() for word in (table.flag_of(name), text)), *own], left

    def _cut(self, ctx: click.Context, args: Sequence[str]) -> tuple[Mapping[str, Any], list[str], list[str]]:
        """The names of the given options, the words of these options, and the words after them."""
        given, left, _ = self.make_parser(ctx).parse_args(list(args))
        behind = 0 if ctx.allow_interspersed_args else len(left)
        return given, list(args[: len(args) - behind]), left

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parse the words. Raises click.UsageError, also if an option is where another option's value should be."""
        flags = {flag: each for each in self.get_params(ctx) for flag in each.opts}
        try:
            own, left = self.split(ctx, args)
            super().parse_args(ctx, list(own))
        except click.UsageError as fault:
            fault.ctx = ctx  # click's parser does not set the command
            raise
        for flag, value in pairwise(own):
            each = flags.get(flag)
            if value in flags and isinstance(each, click.Option) and not each.is_flag:
                raise click.BadOptionUsage(flag, f"Option {flag!r} requires an argument.", ctx)
        if self._takes_more:
            _refuse_blank_words(self.name, left[:1])
            ctx.params["words"] = left
        elif left:
            self._read_script(ctx, left, own[-1:] == ["--"])
        return []

    def _read_script(self, ctx: click.Context, program: Sequence[str], dashed: bool) -> None:
        """Store the words of a program as --script. Raises UsageError for hosts among them, and for two scripts."""
        given = ctx.params
        if given["script"]:
            raise UsageError(
                f"two scripts are given: {program[0]}, and one with {FLAG.script}", f"leave out {FLAG.script}"
            )
        typed = list(ctx.find_root().obj or ())
        own = typed[: len(typed) - len(program)]
        shown = without_values(own)
        if not dashed:
            typos.refuse_hosts_apart(given.get("hosts") or "", program, shown)
        if self.name == "deploy" and not any(given[each] for each in ("hosts", "cluster", "slurm")) and not dashed:
            typos.refuse_hosts_behind(shown, program)
        given["script"], command_line.BEFORE[:] = shlex.join(program), [word for word in own if word != "--"]

    def invoke(self, ctx: click.Context) -> int:
        """Do the command's work."""
        from ..report.console import Console  # imported here so that no help waits for rich (a tenth of a second)

        given, typed = dict(ctx.params), list(ctx.find_root().obj or ())
        allow = given.pop("allow_folder", False)
        names = {each.name for each in table.options_of(self.name or "")}
        options = read_options({name: given.pop(name) for name in names & given.keys()})
        how = shlex.join(["muster", *typed[:1], FLAG.allow_folder, *without_values(typed[1:])])
        console = Console(options.json)
        with consent.asking(
            consent.ConsentGate(lambda: Console(options.json and self.name != _ONE_OBJECT), allow, how)
        ):
            return code_of(console, lambda: self._do(options, console, given))

    def _do(self, options: Options, console: Console, given: Mapping[str, Any]) -> int:
        from ..job.together import refuse_pairs  # imported here so that `--help` does not wait for it

        # A command that runs a script may get more options from a file or a record, and checks all of them later.
        refuse_pairs(self.name or "", options, whole=not self._runs_script)
        with console.opening(lambda: "looking") if self.name in _ASKING else nullcontext():
            return self.work(options, console, **given)

    def get_params(self, ctx: click.Context) -> list[click.Parameter]:
        """The arguments and options; a command with many options also has --help-all."""
        return [*super().get_params(ctx), *[_HELP_ALL] * self._is_long]

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the options. If there are many, they are in sections, and only the most needed are shown by default."""
        if not self._is_long:
            super().format_options(ctx, formatter)
            return
        every = bool(ctx.meta.get(_HELP_ALL.name or ""))
        rows = {each.name: row for each in self.params if (row := each.get_help_record(ctx))}
        for title, words in table.SECTIONS.items():
            first, _, more = words.partition(" | ")
            shown = [rows[name] for name in f"{first} {more * every}".split() if name in rows]
            if shown:
                with formatter.section(title):
                    formatter.write_dl(shown)
        if not every:
            formatter.write(f"\n`muster {self.name} --help-all` shows all options.\n")

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write what the command does, the example and the exit codes, without reflowing the text."""
        formatter.write(f"\n{textwrap.indent(self.help or '', '  ')}\n")


def command(
    example: str | Sequence[str],
    codes: Mapping[int, str],
    words: Mapping[str, str] | None = None,
    name: str = "",
    takes_more: bool = False,
    place: str = "",
) -> Callable[[Callable[..., int]], Command]:
    """Make a function a command; what it returns is the exit code.

    The function gets the options that the table has for this command, a console, and its arguments. `words`: the
    meaning of each argument; an argument whose name ends with `...` may be repeated. `takes_more`: the function also
    gets the words after the options. `place`: the option that a word without a dash sets, in addition to --run and
    --hosts. `codes`: the meaning of exit codes that MEANINGS does not describe well enough.
    """
    examples = [example] if isinstance(example, str) else example

    def made(work: Callable[..., int]) -> Command:
        doc = _doc(work.__doc__ or "", examples, {**MEANINGS, **codes})
        return Command(name or work.__name__, work, doc, words or {}, takes_more, place)

    return made


def code_of(console: Console, work: Callable[[], int]) -> int:
    """Do the work and return its exit code, or that of its error: 0 done, 1 failed, 2 wrong usage, 75 stopped."""
    try:
        code = work()
        if console.lost:
            raise OSError(console.lost.errno, console.lost.strerror, "standard output")
        return code
    except DeployError as fault:
        console.error(fault)
        return fault.code
    except OSError as fault:
        if (refused := from_os_error(fault)) is None:
            raise
        console.error(refused)
        return refused.code
    except KeyboardInterrupt as stop:
        message = str(stop) or "interrupted by Ctrl-C"
        console.warn(message)
        console.data({"kind": "stopped", "message": message})
        return STOPPED


def read_options(given: Mapping[str, Any]) -> Options:
    """Make `Options` from click's parameters: texts, several texts, or switches."""
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
    row, switch = table.row_of(each), each.default is False
    several = each.default == () and row.single_for != takes

    def read(ctx: click.Context, param: click.Parameter, texts: tuple[str, ...]) -> str | tuple[str, ...]:
        refuse_blank(param.opts[0], texts)
        if len({*texts}) > 1 and row.once:
            raise UsageError(f"{param.opts[0]} is given twice, and only one would have an effect", "leave out one")
        return texts if several else ",".join(texts if row.commas else texts[-1:])

    return click.Option(
        [table.flag_of(each.name), *[f"-{row.letter}"] * bool(row.letter)],
        is_flag=switch,
        multiple=not switch,
        default=False if switch else (),
        callback=None if switch else read,
        help=row.helps[takes],
    )


def _show_all(ctx: click.Context, param: click.Parameter, asked: bool) -> None:
    if asked:
        ctx.meta[param.name or ""] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


_HELP_ALL = click.Option(
    ["--help-all"], is_flag=True, is_eager=True, expose_value=False, callback=_show_all, help="show all options"
)


def _argument(word: str, text: str) -> click.Argument:
    nargs, required = -1 if word.endswith("...") else 1, "(default: " not in text

    def read(ctx: click.Context, param: click.Parameter, given: Any) -> Any:
        _refuse_blank_words(ctx.command.name, given if nargs < 0 else [given])
        return given

    return click.Argument([word.removesuffix("...")], nargs=nargs, required=required, callback=read, help=text)


def _refuse_blank_words(command: str | None, words: Iterable[object]) -> None:
    """Raise UsageError for an empty or blank word, as `refuse_blank` does for an option's value."""
    if blank := [word for word in map(str, words) if not word.strip()]:
        raise UsageError(f"{command} {blank[0]!r}: one argument is empty", "give it a value, or leave it out")


def _doc(doc: str, examples: Sequence[str], codes: Mapping[int, str]) -> str:
    """The docstring, followed by the example and the exit codes."""
    shown = [f"  {example}" for example in examples]
    wide = len(str(max(codes)))
    ends = [
        textwrap.fill(
            meaning,
            76,
            initial_indent=f"  {code:>{wide}}  ",
            subsequent_indent=" " * (4 + wide),
            break_on_hyphens=False,
        )
        for code, meaning in sorted(codes.items())
    ]
    return "\n".join([inspect.cleandoc(doc), "", "Example:", *shown, "", "Exit codes:", *ends])
