"""An exception in one line, without the run's secrets, for the notes of a rank (raised.py, end_note.py).

Nothing of Muster may be imported here (place.py).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# The same names as in trainer/node/agent/handover.py.
_NAMES, _FILES, _FOLDER = ("MUSTER_SECRET_NAMES", "MUSTER_SECRETS_PRESENT"), "MUSTER_SECRET_FILES", "/run/secrets"
MOST = 300
_MOST_PARTS, _PART_MOST = 3, 80
# Python has exception groups since 3.11; before, no exception is a group.
_GROUP = getattr(builtins, "BaseExceptionGroup", ())


def _masking() -> Callable[[str], str]:
    """A function that masks the run's secrets, read when this process starts: a script may change its variables."""
    names = {name for variable in _NAMES for name in os.environ.get(variable, "").split(",")}
    texts = [os.environ[name] for name in names if name in os.environ]
    for name in filter(None, os.environ.get(_FILES, "").split(",")):
        with suppress(OSError, UnicodeDecodeError):
            texts.append(Path(os.environ.get("MUSTER_ROOT", "") + _FOLDER, name).read_text())
    if not texts:
        return str
    from .mask import Mask  # only here, since each process below a rank would pay for this import

    return Mask(texts).text


masked = _masking()


def words(fault: BaseException) -> str:
    """The exception as in the last line of a traceback, with its message's first line; for a group, also its parts.

    The result is written to disk, so a secret in it becomes `***`, as in what a rank prints.
    """
    return masked(_words(fault))[:MOST]


def _words(fault: BaseException) -> str:
    kind = type(fault)
    place = "" if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}."
    lines = str(fault).encode(errors="backslashreplace").decode().splitlines()
    text = f"{place}{kind.__qualname__}" + (f": {lines[0]}" if lines and lines[0] else "")
    if isinstance(fault, _GROUP):
        parts = [words(part)[:_PART_MOST] for part in fault.exceptions[:_MOST_PARTS]]
        text = f"{masked(text)[:_PART_MOST]}: {'; '.join(parts)}"
    return text
