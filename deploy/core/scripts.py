"""The shell that hosts run. It lies in `.sh` files, in a folder `scripts` beside the module that sends it.

A script says in its first comment which words it gets. It gets them as "$1", "$2", ...: no word of a user or of a host
becomes shell text. A line `. ./NAME.sh` stands for that file: a host gets one text.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

# What a host is to run: a program and its words, which no shell reads.
Argv = tuple[str, ...]
_INCLUDE = re.compile(r"^\. \./(\w+)\.sh\n", re.MULTILINE)
# Each look at a host sends its script: comments, and the blanks before a line, mean nothing to a shell.
_COMMENT, _INDENT = re.compile(r"^ *#.*\n", re.MULTILINE), re.compile(r"^ +", re.MULTILINE)


class Scripts:
    """The scripts beside the module whose `__file__` this gets."""

    def __init__(self, module: str) -> None:
        self._folder = Path(module).with_name("scripts")

    def __call__(self, name: str, *words: str) -> Argv:
        """The command that runs the script `name` with these words."""
        return ("sh", "-c", self.text(name), name, *words)

    def text(self, name: str) -> str:
        """A script as a host gets it: in one piece, without its comments and indents."""
        return _read(self._folder, name)


@cache
def _read(folder: Path, name: str) -> str:
    text = (folder / f"{name.replace('-', '_')}.sh").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: _read(folder, line[1]) + "\n", _INDENT.sub("", _COMMENT.sub("", text))).rstrip(
        "\n"
    )
