"""Files that survive a kill and a full disk: this module replaces a file as a whole, or appends one line at a time.

What others wrote it reads up to a limit, and no deeper than MOST_DEPTH: a script may write to any of these files.
A disk that fails (full, over its quota, read-only, broken) must not end a training run because of its event files:
lines that cannot be written are lost.
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

# The bytes of one document, how deep its lists and objects may lie in each other, and how many they may be: one takes
# far more time and memory than its two letters.
MOST_BYTES, MOST_DEPTH, MOST_LISTS = 2 << 20, 50, 100_000
MOST_NUMBER = 1 << 53


def seen_at(path: str) -> Path:
    """Where a path of a container is: on a host without an engine, below a folder of the container's own."""
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
    """Write what this user alone may read. A link in its place leads nowhere."""
    path.unlink(missing_ok=True)
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "w", encoding="utf-8") as file:
        file.write(text)


def parse(text: str | bytes, most: int = MOST_LISTS) -> Any:
    """The JSON value in `text`. Raises ValueError also for one that is too deep, or of more lists and objects."""
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
    """Whether a JSON value is a number from -`most` to `most`: no truth value, no NaN, and none that no float holds."""
    return type(value) in (int, float) and -most <= value <= most  # type: ignore[operator]


def read(path: Path, most: int = MOST_BYTES) -> str:
    """The text of a file. Raises OSError, and ValueError if it is no text or longer than `most` bytes.

    What is no file, such as the pipe of `bash <(...)`, raises OSError too: who reads it may wait for ever.
    """
    # As its opener: of a folder, which is opened too, a descriptor of one's own would stay open.
    with open(path, "rb", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
            raise OSError(f"{path} is no file")
        data = file.read(most + 1)
    if len(data) > most:
        raise ValueError(f"{path} has more than {amount(most)}")
    return data.decode()


def object_of(text: str | bytes) -> dict[str, Any]:
    """The JSON object in `text`; empty if it is none."""
    with suppress(ValueError):
        value = parse(text)
        return value if isinstance(value, dict) else {}
    return {}


def read_object(path: Path) -> dict[str, Any]:
    """The JSON object in a file; empty if there is none."""
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

    A full disk may cut one, and take no more until there is room again: the next line stands apart from that.
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
