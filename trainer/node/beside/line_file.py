"""Read the numbers in a `metrics.jsonl` of muster/metrics.py, from a given offset. Standard library only.

Many programs write a file of that name. Muster's is recognised by how each of its lines begins: the time, then the
step.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, BinaryIO

from muster.files import object_of

from .event_file import Point

_HEAD = b'{"t": '
_AT_ONCE = 1 << 20


def is_ours(file: BinaryIO) -> bool:
    """Whether the first line was written by muster/metrics.py. Raises OSError."""
    file.seek(0)
    line = file.readline(_AT_ONCE)
    return line.startswith(_HEAD) and line.endswith(b"\n") and list(object_of(line))[:2] == ["t", "step"]


def read(file: BinaryIO, offset: int) -> tuple[list[Point], int]:
    """The points of the next complete lines from `offset` on, and the offset after them. Raises OSError.

    A line that is not complete yet is left for the next call; a line longer than any that Muster writes is skipped.
    """
    file.seek(offset)
    content = file.read(_AT_ONCE)
    end = content.rfind(b"\n") + 1
    if not end and len(content) == _AT_ONCE:
        end = len(content)
    return [point for line in content[:end].splitlines() for point in _points(object_of(line))], offset + end


def _points(line: dict[str, Any]) -> Iterator[Point]:
    """The numbers in one line. An evaluation's numbers are in a nested table."""
    step = line.pop("step", None)
    line.pop("t", None)
    if type(step) is not int:
        return
    for name, value in line.items():
        table = {f"{name}/{key}": each for key, each in value.items()} if isinstance(value, dict) else {name: value}
        for tag, each in table.items():
            if type(each) in (int, float):
                with suppress(OverflowError):
                    yield Point(tag, step, float(each))
