"""Make text from others safe to print: escape characters that control a terminal or mislead a reader.

Hosts, containers, log files and SSH servers choose that text. An escape sequence in it could clear the screen, set the
title or write the clipboard; a bidirectional override could show a path or a command backwards. names.py checks names.
"""

import re

# Unicode's control, format, surrogate and line separator characters, except the tab, the newline, and the two
# joiners that Persian, Hindi and emoji need.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Colours and cursor movements (CSI sequences, and a progress bar's backspaces): console output is full of them, and a
# line reads better without them.
_CURSOR = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x08+")
# A program draws a second progress bar below the first: it prints a newline and the bar, and moves the cursor up again.
# The next newline only moves down to the second bar, so the sequence is a redraw, like a carriage return.
_UP = re.compile(r"\x1b\[[0-9]{0,3}A\r?$")
_REDRAW = re.compile(r"(?:\x1b\[[0-9]{0,3}A){1,30}\r?\n+")


def visible(text: str) -> str:
    r"""`text` with its control and format characters written as escapes (`\x1b`); newlines and tabs stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def one_line(text: str) -> str:
    r"""Like `visible`, for text that must stay on one line: a newline becomes `\n`, a tab becomes a blank."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


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


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
