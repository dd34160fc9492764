"""Read the scalars in a TensorBoard event file, from a given offset. Standard library only.

A file consists of records: a length (8 bytes), its checksum, a protobuf `Event` and its checksum
(tensorflow/core/lib/io/record_writer.h, tensorflow/core/util/event.proto). These fields are read: Event.step = 2,
.summary = 5; Summary.value = 1; Value.tag = 1, .simple_value = 2, .tensor = 8; TensorProto.dtype = 1,
.tensor_content = 4, .float_val = 5, .double_val = 6. Checksums are not read: a record that was cut off is shorter than
its length field.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO, NamedTuple

_HEAD, _TAIL_BYTES = struct.Struct("<QI"), 4
# A record with scalars has some hundred bytes; larger records (images and histograms) are skipped.
_MOST_RECORD = 64 * 1024
_FLOATS = {1: struct.Struct("<f"), 2: struct.Struct("<d")}
_LAST_VARINT_BYTE = 9
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5


class Point(NamedTuple):
    """One value of a tag."""

    tag: str
    step: int
    value: float


def read(file: BinaryIO, offset: int, size: int, most: int) -> tuple[list[Point], int]:
    """The points of the next complete records from `offset` on, at most `most` records, and the offset after them.

    `size` is the file's size. A record that is not complete yet is left for the next call. Raises OSError.
    """
    points = list[Point]()
    file.seek(offset)
    for _ in range(most):
        head = file.read(_HEAD.size)
        if len(head) < _HEAD.size:
            break
        length = _HEAD.unpack(head)[0]
        end = offset + _HEAD.size + length + _TAIL_BYTES
        if end > size:
            break
        if length <= _MOST_RECORD:
            with suppress(ValueError, IndexError, struct.error):
                points += _points(file.read(length))
        file.seek(end)
        offset = end
    return points, offset


def _points(event: bytes) -> list[Point]:
    """The scalars of an event. Raises ValueError, IndexError or struct.error for data that is not protobuf."""
    step, points = 0, list[tuple[str, float]]()
    for number, content in _fields(event):
        if number == 2 and isinstance(content, int):
            step = content
        elif number == 5 and isinstance(content, bytes):
            points += [point for key, value in _fields(content) if key == 1 and (point := _scalar(value))]
    return [Point(tag, step, value) for tag, value in points]


def _scalar(summary: int | bytes) -> tuple[str, float] | None:
    if isinstance(summary, int):
        return None
    tag, value = "", None
    for number, content in _fields(summary):
        if isinstance(content, int):
            continue
        if number == 1:
            tag = content.decode(errors="replace")
        elif number == 2:
            value = _FLOATS[1].unpack(content)[0]
        elif number == 8:
            value = _of_tensor(content)
    return (tag, value) if tag and value is not None else None


def _of_tensor(tensor: bytes) -> float | None:
    """The value of a float tensor with exactly one element; None for other tensors."""
    kind, content = 0, b""
    for number, value in _fields(tensor):
        if number == 1 and isinstance(value, int):
            kind = value
        elif number in (4, 5, 6) and isinstance(value, bytes):
            content = value
    number_format = _FLOATS.get(kind)
    return number_format.unpack(content)[0] if number_format and len(content) == number_format.size else None


def _fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """The fields of a protobuf message: each has a number, and an integer or bytes as its value."""
    at = 0
    while at < len(message):
        key, at = _varint(message, at)
        kind = key & 7
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in (_FIXED64, _FIXED32):
            size = 8 if kind == _FIXED64 else 4
        else:
            raise ValueError(f"wire type {kind}")
        if at + size > len(message):
            raise ValueError("a field that is longer than its message")
        yield key >> 3, message[at : at + size]
        at += size


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for place in range(_LAST_VARINT_BYTE + 1):
        byte = message[at + place]
        value |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return value, at + place + 1
    raise ValueError("a number of more than ten bytes")
