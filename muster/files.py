"""Files that survive a kill and a full disk: this module replaces a file as a whole, or appends one line at a time.

It reads files of other writers only up to a size limit and a nesting depth of MOST_DEPTH, because a script may write to
any of these files. A disk that fails (full, over its quota, read-only, broken) must not end a training run because of
its event files: lines that cannot be written are lost.
"""

from __future__ import annotations

import json
import os
import stat
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeGuard

# Limits for one JSON document: its bytes, how deeply its lists and objects may be nested, and how many of them it may
# have. A list or object takes far more time and memory than the two characters in the text.
MOST_BYTES, MOST_DEPTH, MOST_LISTS = 2 << 20, 50, 100_000
MOST_NUMBER = 1 << 53


def seen_at(path: str) -> Path:
    """Where a container's path is: on a host without an engine, below the folder in MUSTER_ROOT."""
    root = os.environ.get("MUSTER_ROOT", "")
    return Path(os.path.realpath(root + path)) if root else Path(path)


def amount(size: int) -> str:
    """Bytes in decimal units: `340 kB`, `1.2 MB`."""
    return f"{size / 1e6:,.1f} MB" if size >= 1e6 else f"{size / 1e3:,.0f} kB"


def replace(path: Path, text: str) -> None:
    """Write `text` to `path` so that a reader sees the old text or the new one, never a part of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        temporary.write_text(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def write_own(path: Path, text: str, mode: int = 0o600) -> None:
    """Write a file that only this user may read. A link at this path is replaced, not followed."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)


def parse(text: str | bytes, most: int = MOST_LISTS) -> Any:
    """Parse the JSON value in `text`.

    Raises ValueError also if it is nested too deeply or has too many lists and objects.
    """
    if isinstance(text, bytes):
        text = text.decode()
    if text.count("[") + text.count("{") > most:
        raise ValueError(f"the JSON has more than {most:,} lists and objects")
    try:
        value = json.loads(text)
    except RecursionError as error:
        raise ValueError("the JSON is nested too deeply") from error
    level = [value]
    for _ in range(MOST_DEPTH + 1):
        level = [each for each in level if isinstance(each, list | dict)]
        level = [inner for each in level for inner in (each.values() if isinstance(each, dict) else each)]
        if not level:
            return value
    raise ValueError("the JSON is nested too deeply")


def is_number(value: object, most: int = MOST_NUMBER) -> TypeGuard[float]:
    """Whether a JSON value is a number from -`most` to `most`: not a boolean, not NaN, not infinite."""
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]


def read(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file. Raises OSError, and ValueError if it is not text or longer than `most` bytes.

    Anything but a regular file, such as the pipe of `bash <(...)`, raises OSError too: a reader might wait for it
    forever.
    """
    # This is an opener so that open() closes the descriptor if the path is a folder; after a plain os.open it would
    # leak.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} has more than {amount(most)}")
    return data.decode()


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object in `text`; an empty dict if the text is not a JSON object."""
    with suppress(ValueError):
        value = parse(text)
        return value if isinstance(value, dict) else {}
    return {}


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; an empty dict if the file has none."""
    with suppress(OSError, ValueError):
        return object_of(read(path))
    return {}


def read_lines(path: Path) -> list[dict[str, Any]]:
    """The objects in a JSON-lines file, without incomplete lines; an empty list if there is no file."""
    objects = list[dict[str, Any]]()
    with suppress(FileNotFoundError), path.open("rb") as file:
        while line := file.readline(MOST_BYTES):
            objects += filter(None, [object_of(line)])
    return objects


class Lines:
    """A JSON-lines file. It appends each line with a single `write`, so a kill can cut off only the last line.

    A full disk may cut a line short, and accept no more until there is room again: the next line then starts on a line
    of its own.
    """

    _cut = False

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)

    def add(self, **fields: Any) -> dict[str, Any]:
        """Append a line with the time and `fields`, and return its content."""
        line = {"t": round(time.time(), 3), **fields}
        data = ("\n" * self._cut + json.dumps(line) + "\n").encode()
        self._cut = True
        try:
            self._cut = os.write(self._file, data) < len(data)
        except OSError as fault:
            with suppress(OSError):  # standard error may be a file on the same disk
                print(f"cannot write an event line: {fault}", file=sys.stderr)
        return line
