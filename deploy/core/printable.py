"""Make text from others safe to print: escape characters that control a terminal or mislead a reader.

Hosts, containers, log files and SSH servers choose that text. An escape sequence in it could clear the screen, set the
title or write the clipboard; a bidirectional override could show a path or a command backwards. names.py checks names.
"""

import re
import unicodedata
from functools import lru_cache
from typing import Any

# Characters without a shape of their own, although Unicode counts them as letters or marks.
_SHAPELESS = re.compile("VARIATION SELECTOR|FILLER$|GRAPHEME JOINER|VOWEL INHERENT")
# First the shapeless characters that real text needs, in the only places that need them: joiners within Persian, Hindi
# and emoji; an emoji's style, also of a key such as 1; a kanji's variant. Elsewhere two names could look the same.
# Then, as a group, each character that has to be looked at.
_ODD = re.compile(
    "(?<=[^\x00-\u02ff\u2000-\u200f])[\u200c\u200d](?=[^\x00-\u02ff\u2000-\u200f\ufe00-\ufe0f])|"
    "(?<=[^\x00-\xa8\xaa-\xad\xaf-\u02ff\u2000-\u200f\ufe00-\ufe0f])[\ufe0e\ufe0f]|(?<=[#*0-9])\ufe0f(?=\u20e3)|"
    "(?<=[\u3400-\u9fff\U00020000-\U0003ffff])[\U000e0100-\U000e01ef]|([^\t\n -~])"
)
# Colours and cursor movements (CSI sequences, and a progress bar's backspaces): console output is full of them, and a
# line reads better without them.
_CURSOR = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x08+")
# A program draws a second progress bar below the first: it prints a newline and the bar, and moves the cursor up again.
# The next newline only moves down to the second bar, so the sequence is a redraw, like a carriage return.
_UP = re.compile(r"\x1b\[[0-9]{0,3}A\r?$")
_REDRAW = re.compile(r"(?:\x1b\[[0-9]{0,3}A){1,30}\r?\n+")


def visible(text: str) -> str:
    r"""`text` with each character that has no shape written as an escape (`\x1b`); blanks, newlines and tabs stay."""
    return _ODD.sub(lambda match: _shown(match[0]) if match[1] else match[0], text)


def one_line(text: str) -> str:
    r"""Like `visible`, for text that must stay on one line: a newline becomes `\n`, a tab becomes a blank."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def visible_values(value: Any) -> Any:
    """The same lists and objects, with each text made visible: what the script of a page shows as text."""
    if isinstance(value, dict):
        return {visible(name): visible_values(each) for name, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [visible_values(each) for each in value]
    return visible(value) if isinstance(value, str) else value


def without_redraws(text: str) -> str:
    """Console output, as long as before, in which the redraws of a second progress bar become carriage returns."""
    return _REDRAW.sub(lambda match: "\r" * len(match[0]), text)


def is_redrawn(line: str) -> bool:
    """Whether the next line is drawn over this one: this line ends by moving the cursor up."""
    return _UP.search(line) is not None


def plain(text: str) -> str:
    """`text` without colours and cursor movements."""
    return _CURSOR.sub("", text)


def console_line(text: str) -> str:
    """A console line as visible text, without colours, cursor movements and a progress bar's earlier states."""
    parts = [part for part in plain(text).split("\r") if part.strip()]
    return one_line(parts[-1]) if parts else ""


@lru_cache(10_000)
def _shown(letter: str) -> str:
    """The character, or its escape if by its Unicode category and name it has no shape and is no blank."""
    if unicodedata.category(letter) == "Zs":
        return letter
    has_shape = letter.isprintable() and not _SHAPELESS.search(unicodedata.name(letter, ""))
    return letter if has_shape else letter.encode("unicode_escape").decode()
