"""An exception in one line, without the run's secrets, as the notes of a rank have it (raised.py, end_note.py).

Nothing of Muster may be imported here (place.py).
"""

from __future__ import annotations

import builtins
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

# As trainer/node/agent/handover.py has them.
_NAMES, _FILES, _FOLDER = ("MUSTER_SECRET_NAMES", "MUSTER_SECRETS_PRESENT"), "MUSTER_SECRET_FILES", "/run/secrets"
MOST = 300
_MOST_PARTS, _PART_MOST = 3, 80
# Python has it since 3.11; without it nothing is a group.
_GROUP = getattr(builtins, "BaseExceptionGroup", ())


def _masking() -> Callable[[str], str]:
    """Puts `***` for the run's secrets, as this process has them at its start: a script may change its variables."""
    names = {name for variable in _NAMES for name in os.environ.get(variable, "").split(",")}
    texts = [os.environ[name] for name in names if name in os.environ]
    for name in filter(None, os.environ.get(_FILES, "").split(",")):
        with suppress(OSError, UnicodeDecodeError):
            texts.append(Path(os.environ.get("MUSTER_ROOT", "") + _FOLDER, name).read_text())
    if not texts:
        return str
    from .mask import Mask  # only then is it worth its imports, in each process below a rank

    return Mask(texts).text


masked = _masking()


def words(fault: BaseException) -> str:
    """The exception as the last line of a traceback names it, its message's first line; a group's parts behind it.

    These words go to the disk, so a secret in them is `***`, as in what a rank prints.
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
