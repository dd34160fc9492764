"""What a row of the table of options says (options.py): of an option, and of its key in cluster.toml."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

# For `Key.asks`: a file may set it by itself, as it stays within the run's containers; it is asked for as it stands.
FREE, AS_IT_STANDS = "", "{}"


@dataclass(frozen=True)
class Key:
    """What stands for an option in the [job] table of a cluster.toml: one value, or a list where it has several."""

    # The key, which is also the field of `Job` that holds the value.
    name: str
    # Makes the value (one of the list) of what the file says, or None of what is refused: it `is not {wanted}`.
    read: Callable[[Any], Any]
    wanted: str
    # What a file that came with a folder has to be allowed: the words of the question, in which {} is the value.
    asks: str = AS_IT_STANDS
    # `read` makes a reader of the file's folder, in which paths begin.
    relative: bool = False
    # The path is refused where there is no "file", or no "folder".
    exists: str = ""
    # One value may stand without a list.
    alone: bool = False
    # The values stand in a table below the names of variables.
    named: bool = False
    # A refusal does not show the value.
    secret: bool = False
    # The file turns off what is on: the option is a switch that says no.
    negates: bool = False
    # A deploy takes it as if it were typed: its record repeats it.
    typed: bool = False


class Term(NamedTuple):
    """One thing that has to be so: one of these options is given, with one of `texts` if there are any; or none is."""

    names: list[str]
    texts: list[str]
    absent: bool


@dataclass(frozen=True)
class Rule:
    """Beside which other options one is refused (load.py), and `why`.

    `when`: what has to be so, all of it: `wait` or `backend|workers` (one is given), `!run` (it is not, and the option
    needs it), `to=jobset|trainjob` (with such a text). `instead`: what to type; empty: to leave out one of them.
    """

    when: str
    why: str
    instead: str = ""
    # The commands for which it holds, with blanks between; empty: for each that has the option.
    on: str = ""

    @property
    def terms(self) -> list[Term]:
        """What has to be so."""
        parts = re.findall(r"(!?)([\w|]+)=?([\w|]*)", self.when)
        return [Term(names.split("|"), texts.split("|") if texts else [], bool(no)) for no, names, texts in parts]

    @property
    def needs(self) -> list[str]:
        """The other options of which it asks for one."""
        return [name for term in self.terms if term.absent for name in term.names]


@dataclass(frozen=True)
class OptionRow:
    """What an option is, beside its name and what it holds when it is not given."""

    # What it means, to most of the commands that have it; of a key that no command has, in the file.
    help: str
    # By command, what it means there. Other commands do not have it.
    helps: Mapping[str, str]
    key: Key | None = None
    # Its name in Python, where that is another; None: Python says it in another way (api.py).
    python: str | None = ""
    # Which others it excludes, or needs. A rule of two options stands at one of them.
    rules: tuple[Rule, ...] = ()
    # A resume repeats it.
    again: bool = True
    # Makes what the program uses of one text; None of one that is refused. Then the error ends with `refusal`, and in
    # the hint {command} is the command that was typed.
    read: Callable[[str], Any] | None = None
    refusal: str = ""
    hint: str = ""
    # The command to which it is one text, although it is several to others.
    single: str = ""
    # Its short form: `-H`. A letter means the same to each command that has it.
    letter: str = ""
    # Each of its texts may be several, with commas.
    commas: bool = False


def option(help: str, on: str = "", start: Any = "", *, of: Mapping[str, str] | None = None, **more: Any) -> Any:
    """A row. `on`: the commands that take it, with blanks between; `of`: what it means to others, which stand likewise.

    `start`: what it holds if it is not given, which says what it is: a text (""), several (()), a switch (False).
    """
    helps = dict.fromkeys(on.split(), help)
    for commands, other in (of or {}).items():
        helps |= dict.fromkeys(commands.split(), other)
    return field(default=start, metadata={"row": OptionRow(help, helps, **more)})
