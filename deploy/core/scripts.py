"""Shell scripts that hosts run: `.sh` files in a folder `scripts` next to the module that sends them.

The first comment of a script says which arguments it takes. It gets them as "$1", "$2", ...: no word from a user or a
host becomes shell text. A line `. ./NAME.sh` is replaced by that file, so a host gets one text.
"""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

# A command for a host: a program and its arguments, which no shell interprets.
Argv = tuple[str, ...]
_INCLUDE = re.compile(r"^\. \./(\w+)\.sh\n", re.MULTILINE)
# Every look at a host sends its script, so comments and indents, which a shell ignores, are left out.
_COMMENT, _INDENT = re.compile(r"^ *#.*\n", re.MULTILINE), re.compile(r"^ +", re.MULTILINE)


class Scripts:
    """The scripts next to the module whose `__file__` is given."""

    def __init__(self, module: str) -> None:
        self._folder = Path(module).with_name("scripts")

    def __call__(self, name: str, *words: str) -> Argv:
        """The command that runs the script `name` with these arguments."""
        return ("sh", "-c", self.text(name), name, *words)

    def text(self, name: str) -> str:
        """The text of a script as a host gets it: with its included files, without comments and indents."""
        return _read(self._folder, name)


@cache
def _read(folder: Path, name: str) -> str:
    text = (folder / f"{name.replace('-', '_')}.sh").read_text(encoding="utf-8")
    return _INCLUDE.sub(lambda line: _read(folder, line[1]) + "\n", _INDENT.sub("", _COMMENT.sub("", text))).rstrip(
        "\n"
    )
