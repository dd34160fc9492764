"""Parse TOML that somebody else may have written, within limits that no ordinary file comes near."""

from __future__ import annotations

import re
import tomllib
from itertools import takewhile
from typing import Any

_DEEPEST, _MOST_PARTS, _MOST_DIGITS = 50, 100_000, 2000
# tomllib's time grows with the square of a dotted key's length.
_DOTTED = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_DEEPEST}}}")
# tomllib's patterns for numbers take a hundred bytes of memory per digit.
_NUMBER = re.compile(rf"(?<![\w\"'])[0-9][0-9A-Fa-f_xob]{{{_MOST_DIGITS}}}")


def loads(text: str) -> dict[str, Any]:
    """Parse a document. Raises ValueError, also if it is nested too deeply or has too many parts."""
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_DEEPEST} parts")
    if _NUMBER.search(text):
        raise ValueError(f"a number has more than {_MOST_DIGITS} digits")
    if max(sum(map(text.count, "=,[{")), text.count("\n")) > _MOST_PARTS:
        raise ValueError(f"it has more than {_MOST_PARTS:,} parts or lines")
    try:
        return tomllib.loads(text)
    except RecursionError as fault:
        raise ValueError("it is nested too deeply") from fault


def of_script(text: str) -> dict[str, Any]:
    """The document in a Python file's `# /// script` block; empty if it has none. Raises ValueError.

    As PEP 723 has it: the last `# ///` of consecutive comments closes the block.
    """
    lines = [line.rstrip() for line in text.split("\n")]
    opened = [number for number, line in enumerate(lines, 1) if line == "# /// script"]
    if not opened:
        return {}
    if more := opened[1:]:
        raise ValueError(f"line {more[0]} begins another one: a file has one")
    block = [*takewhile(lambda line: line == "#" or line.startswith("# "), lines[opened[0] :])]
    if "# ///" not in block:
        raise ValueError(f"line {opened[0]} begins it, and nothing ends it: add the line `# ///` after its last line")
    last = len(block) - block[::-1].index("# ///") - 1
    return loads("\n".join(line[2:] for line in block[:last]))
