"""Turn options into words (for a record, `resume`, or the command in a hint), and such words into options. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import pairwise
from typing import Any

from ..core.errors import UsageError
from ..core.program import BEFORE, COMMAND, hosts_as_typed
from . import values
from .options import FLAG, ROWS, Options, flag_of, options_of

# Options with NAME=VALUE, and such a value in one word with its option.
_NAMED = (FLAG.env, "-e", FLAG.secret, FLAG.secret_file, FLAG.env_file)
_VALUE = re.compile(rf"(?s)((?:{'|'.join(_NAMED)})=?|)([\w.-]+)=.*")
# A run may take this much longer to end than its ranks may take to save.
_REPORTS_AFTER_S = 120.0


def refuse_blank(flag: str, texts: Iterable[object]) -> None:
    """Raise UsageError for an empty or blank text, probably an unset variable: `stop --run ""` would mean any run."""
    if not all(str(text).strip() for text in texts):
        raise UsageError(f"{flag}: its value is empty", f"give it one, or leave out {flag}")


def pairs_of(options: Options, names: Collection[str] = ROWS) -> list[tuple[str, str]]:
    """A flag and a text for each of these options that is given, in the table's order; a switch has no text."""
    pairs = []
    for name in ROWS:
        value = getattr(options, name) if name in names else ""
        texts = value if isinstance(value, tuple) else (value,)
        pairs += [(flag_of(name), "" if text is True else text) for text in texts if text]
    return pairs


def words_of(options: Options, names: Collection[str] = ROWS) -> list[str]:
    """The command-line words for these options."""
    words: list[str] = []
    for flag, text in pairs_of(options, names):
        # A value that begins with a dash would be taken for an option.
        words += [f"{flag}={text}"] if text.startswith("-") else [flag, text] if text else [flag]
    return words


def command_of(task: str, options: Options | None = None, more: str = "", **given: Any) -> str:
    """The command line of a task with these options and those `given` by name.

    `more`: words after the options, already quoted.
    """
    words = ["muster", task]
    asked = replace(options or Options(), **given)
    for flag, text in pairs_of(replace(asked, hosts=hosts_as_typed(asked.hosts))):
        between = "=" if text.startswith("-") else " " * bool(text)
        words.append(f"{flag}{between}{shlex.quote(text) if text else ''}")
    return " ".join(filter(None, [*words, more]))


def include_of(*paths: str) -> str:
    """The --include options that also send these paths, for a hint."""
    return " ".join(f"{FLAG.include} {shlex.quote(path)}" for path in paths)


def note_of_own(words: Sequence[str], source: str, option: str) -> list[str]:
    """A note, if the typed words of a script with this text have an option of Muster's that it does not mention."""
    own = {flag_of(each.name): each for each in options_of(COMMAND)} if source and BEFORE and option == "--" else {}
    for at, word in enumerate(words):
        flag, equals, _ = word.partition("=")
        each = own.get(flag)
        if not each or each.name in source or flag[2:] in source:
            continue
        behind = at + (1 if equals or each.default is False else 2)
        own_words = shlex.join(without_values(words[at:behind]))
        again = retyped((*words[:at], *words[behind:]), option, own_words)
        return [f"{flag}: the script gets it, and does not mention it; if you meant Muster: {again}"]
    return []


def retyped(words: Sequence[str], option: str, options: str = "") -> str:
    """A script's command for a hint: in the form that `option` takes, after these `options` of Muster's."""
    return typed_again(shlex.join(words) or "train.py --lr 3e-4", option, options)


def typed_again(command: str, option: str, options: str = "") -> str:
    """The command line to type instead, with a script's command as it was typed."""
    if option != "--":
        return f"{options} {option} {shlex.quote(command)}".strip()
    shown = shlex.join(["muster", *without_values(BEFORE)] if BEFORE else ())
    return " ".join(filter(None, (shown, options, "--", command)))


def without_values(words: Sequence[str]) -> list[str]:
    """A command's typed words for a hint: without the values of variables, which may be secrets.

    A script's own arguments stay as they are. A word right after an option may be its value, so it is no script.
    """
    pairs = list(pairwise(("", *words)))
    scripts = (
        at
        for at, (before, word) in enumerate(pairs)
        if word == "--" or (word.endswith((".py", ".sh")) and not (word.startswith("-") or before.startswith("-")))
    )
    end = next(scripts, len(words))
    shown = []
    for before, word in pairs[:end]:
        value = _VALUE.fullmatch(word)
        shown.append(f"{value[1]}{value[2]}=..." if value and (value[1] or before in _NAMED) else word)
    return [*shown, *words[end:]]


def words_again(options: Options, more: Collection[str] = ()) -> list[str]:
    """The words that a resume repeats; `more`: further options that it repeats."""
    return words_of(options, {name for name, row in ROWS.items() if row.again} | {*more})


def read_again(again: str) -> Options:
    """Read the options from a record's `again`: words that `words_again`, of this or an earlier version, wrote."""
    left, known = shlex.split(again), {flag_of(each.name): each for each in fields(Options)}
    given: dict[str, Any] = {}
    while left:
        flag, _, text = left.pop(0).partition("=")
        if (each := known.get(flag)) is None:
            continue
        if each.default is False:
            given[each.name] = True
        elif text or left:
            text = text or left.pop(0)
            given[each.name] = (*given.get(each.name, ()), text) if each.default == () else text
    return Options(**given)


def overridden_by(again: str, options: Options) -> Options:
    """The options in a record's `again`; those that the user types now replace them."""
    return replace(read_again(again), **{name: value for name, value in vars(options).items() if value})


def stop_wait_s(known: Mapping[str, Any]) -> float:
    """How long `muster stop` waits for a run elsewhere to end. Then it says what still runs, and kills nothing."""
    return grace_s(known) + _REPORTS_AFTER_S


def grace_s(known: Mapping[str, Any]) -> float:
    """The seconds that ranks may take to save, from the run's record; 0 if it does not set them."""
    return values.grace(read_again(str(known.get("again") or "")).grace) or 0.0
