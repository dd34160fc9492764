"""Make text from others safe to print: escape what a terminal would obey or would mislead; names.py checks names.

Hosts, containers, log files and SSH servers choose that text. An escape sequence in it could clear the screen, set the
title or write the clipboard; a bidirectional override could show a path or a command backwards.
"""

import re

# Unicode's control, format, surrogate and line separator characters, but for the tab, the newline, and the two
# joiners that Persian, Hindi and emoji need.
_UNSAFE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u0600-\u0605\u061c\u06dd\u070f\u08e2\u180e\u200b\u200e\u200f\u2028-\u202e"
    "\u2060-\u2064\u2066-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)
# Colours and movements of the cursor (CSI, and a bar's backspaces): a console is full of them, and a line reads better
# without.
_CURSOR = re.compile(r"\x1b\[[0-?]{0,32}[ -/]{0,8}[@-~]|\x08+")
# A second progress bar is drawn below the first: a line's end, the bar, and the cursor back up. The next end of a line
# goes down to the bar again, so it is a redraw like a carriage return.
_UP = re.compile(r"\x1b\[[0-9]{0,3}A\r?$")
_REDRAW = re.compile(r"(?:\x1b\[[0-9]{0,3}A){1,30}\r?\n+")


def visible(text: str) -> str:
    r"""`text` with its control and format characters written as escapes (`\x1b`); newlines and tabs stay."""
    if text.isprintable():
        return text
    return _UNSAFE.sub(lambda match: _escape(match[0]), text)


def one_line(text: str) -> str:
    r"""The same for text that must stay on one line: a newline is written as `\n`, a tab is a blank."""
    return visible(text).replace("\n", "\\n").replace("\t", " ")


def without_redraws(text: str) -> str:
    """Lines of a console, as long as before: those of a progress bar below another are one with carriage returns."""
    return _REDRAW.sub(lambda match: "\r" * len(match[0]), text)


def is_redrawn(line: str) -> bool:
    """Whether the line after this one is drawn over it: it ends with the cursor going up."""
    return _UP.search(line) is not None


def plain(text: str) -> str:
    """`text` without colours and cursor movements."""
    return _CURSOR.sub("", text)


def console_line(text: str) -> str:
    """A line of somebody's console, visible: without colours and cursor movements, of a progress bar the last state."""
    parts = [part for part in plain(text).split("\r") if part.strip()]
    return one_line(parts[-1]) if parts else ""


def _escape(character: str) -> str:
    return character.encode("unicode_escape").decode()
