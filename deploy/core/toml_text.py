"""Parse TOML that somebody else may have written: in time and depth that nobody's own file comes near."""

from __future__ import annotations

import re
import tomllib
from typing import Any

_DEEPEST = 50
# tomllib takes a time that grows with the square of a dotted key's length.
_DOTTED = re.compile(rf"(?<![\w\"'-])(?:[\w\"'-]++[ \t]*+\.[ \t]*+){{{_DEEPEST}}}")


def loads(text: str) -> dict[str, Any]:
    """The document. Raises ValueError, also for what is nested too deeply."""
    if _DOTTED.search(text):
        raise ValueError(f"a key has more than {_DEEPEST} parts")
    try:
        return tomllib.loads(text)
    except RecursionError as fault:
        raise ValueError("it is nested too deeply") from fault
