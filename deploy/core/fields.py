"""Readers that check answers from hosts and containers: they return a value, or raise BadAnswer with its name. Pure.

A reader takes a value and its name (`state.ExitCode`). Readers for lists and objects are built from readers for their
parts. So the code that uses an answer describes all of it in one place, and uses no unchecked part.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from .budget import MOST_DEPTH, MOST_PARTS, is_shallow
from .errors import BadAnswer

T = TypeVar("T")
U = TypeVar("U")
Reader = Callable[[object, str], T]

AnyReader = Reader[Any]

MOST_DOCUMENT = 4 << 20  # characters of JSON
MOST_WHOLE = (1 << 63) - 1
MOST_WORDS = 2000
_MOST_DECIMAL = 1e11
_INTERFACE = r"[^\s/'\"`$;&|<>()\\%\x00-\x1f\x7f]+"
_DIGITS = re.compile(r"-?[0-9]{1,19}")
_NUMBER = re.compile(r"-?[0-9]{1,19}(\.[0-9]{0,19})?([eE][-+]?[0-9]{1,3})?")


def document(source: str | bytes, what: str, most: int = MOST_DOCUMENT, parts: int = MOST_PARTS) -> Any:
    """Parse a JSON text. Raises BadAnswer if it is not JSON, is too long or too deep, or has too many parts."""
    expected = "JSON"
    if len(source) > most:
        expected = f"at most {most} characters of JSON"
    elif len(source) > parts and _parts(source) > parts:
        expected = f"JSON of at most {parts} parts"
    else:
        try:
            value = json.loads(source)
            if _brackets(source) <= MOST_DEPTH or is_shallow(value):
                return value
        except (ValueError, RecursionError):
            pass
    shown = source if isinstance(source, str) else source[:200].decode(errors="replace")
    raise BadAnswer(what, expected, shown)


def _parts(source: str | bytes) -> int:
    """An upper bound for the number of parts in a JSON text."""
    return _brackets(source) + (source.count(",") if isinstance(source, str) else source.count(b","))


def _brackets(source: str | bytes) -> int:
    """An upper bound for the number of lists and objects in a JSON text, and so for its depth."""
    return source.count("[") + source.count("{") if isinstance(source, str) else source.count(b"[") + source.count(b"{")


def json_object(source: str | bytes, what: str, most: int = MOST_DOCUMENT) -> dict[str, Any]:
    """Parse a JSON text that must be an object. Raises BadAnswer."""
    value = document(source, what, most)
    if isinstance(value, dict):
        return value
    raise BadAnswer(what, "a JSON object", value)


def object_or_empty(source: str) -> dict[str, Any]:
    """The JSON object in a text; an empty object for any other text."""
    try:
        return json_object(source, "")
    except BadAnswer:
        return {}


def whole(most: int = MOST_WHOLE, *, least: int = 0) -> Reader[int]:
    """Accept a whole JSON number within bounds."""

    def read(value: object, what: str) -> int:
        if isinstance(value, int) and not isinstance(value, bool) and least <= value <= most:
            return value
        raise BadAnswer(what, f"a whole number from {least} to {most}", value)

    return read


def digits(most: int = MOST_WHOLE, *, least: int = 0) -> Reader[int]:
    """Accept text that is a whole number in ASCII digits."""

    def read(value: object, what: str) -> int:
        if isinstance(value, str) and _DIGITS.fullmatch(value) and least <= int(value) <= most:
            return int(value)
        raise BadAnswer(what, f"a whole number from {least} to {most}", value)

    return read


def real(most: float = 1e300, *, least: float = 0.0) -> Reader[float]:
    """Accept a finite JSON number within bounds; a whole number becomes a float."""

    def read(value: object, what: str) -> float:
        # Compare before the conversion: an integer may be too large for a float. NaN fails every comparison.
        if isinstance(value, float | int) and not isinstance(value, bool) and least <= value <= most:
            return float(value)
        raise BadAnswer(what, f"a number from {least:g} to {most:g}", value)

    return read


def decimal(least: float = 0.0) -> Reader[float]:
    """Accept text that is a finite number in ASCII digits."""

    def read(value: object, what: str) -> float:
        if isinstance(value, str) and _NUMBER.fullmatch(value) and least <= float(value) <= _MOST_DECIMAL:
            return float(value)
        raise BadAnswer(what, f"a number from {least:g} to {_MOST_DECIMAL:g}", value)

    return read


def flag(value: object, what: str) -> bool:
    """Accept true or false."""
    if isinstance(value, bool):
        return value
    raise BadAnswer(what, "true or false", value)


def nothing(value: object, what: str) -> None:
    """Accept null."""
    if value is not None:
        raise BadAnswer(what, "nothing", value)


def text(most: int = MOST_WORDS, like: str = "") -> Reader[str]:
    """Accept text of at most `most` characters that matches the pattern `like`, if there is one."""
    pattern = re.compile(like) if like else None

    def read(value: object, what: str) -> str:
        if isinstance(value, str) and len(value) <= most and (pattern is None or pattern.fullmatch(value)):
            return _whole_letters(value)
        raise BadAnswer(what, f"text{f' like {like}' if like else ''} of at most {most} characters", value)

    return read


def words(most: int = MOST_WORDS) -> Reader[str]:
    """Accept text for people, and cut it after `most` characters: a long message is still shown."""

    def read(value: object, what: str) -> str:
        if isinstance(value, str):
            return _whole_letters(value[:most])
        raise BadAnswer(what, "text", value)

    return read


def address(value: object, what: str) -> str:
    """Accept an IP address, but no host name. A link-local address may have its interface after a %."""
    if isinstance(value, str) and len(value) <= 80:
        plain, percent, scope = value.partition("%")
        try:
            ipaddress.ip_address(plain)
        except ValueError:
            pass
        else:
            if not percent or (":" in plain and re.fullmatch(_INTERFACE, scope)):
                return value
    raise BadAnswer(what, "an IP address", value)


def interface(value: object, what: str) -> str:
    """Accept the name of a network interface without any character that a shell would interpret."""
    return text(15, _INTERFACE)(value, what)


def array(item: Reader[T], most: int = 1000) -> Reader[list[T]]:
    """Accept a list of at most `most` elements."""

    def read(value: object, what: str) -> list[T]:
        if isinstance(value, list) and len(value) <= most:
            return [item(element, f"{what}[{index}]") for index, element in enumerate(value)]
        raise BadAnswer(what, f"a list of at most {most}", value)

    return read


def row(*items: AnyReader) -> Reader[list[Any]]:
    """Accept a list with exactly one element for each of these readers."""

    def read(value: object, what: str) -> list[Any]:
        if isinstance(value, list) and len(value) == len(items):
            return [read(part, f"{what}[{index}]") for index, (read, part) in enumerate(zip(items, value, strict=True))]
        raise BadAnswer(what, f"a list of {len(items)}", value)

    return read


def table(key: Reader[str], item: Reader[T], most: int = 1000) -> Reader[dict[str, T]]:
    """Accept an object of at most `most` entries; `key` and `item` read each of its keys and values."""

    def read(value: object, what: str) -> dict[str, T]:
        if isinstance(value, dict) and len(value) <= most:
            return {key(name, f"a key of {what}"): item(entry, f"{what}.{name[:40]}") for name, entry in value.items()}
        raise BadAnswer(what, f"an object of at most {most} entries", value)

    return read


def record(
    must: Mapping[str, AnyReader], may: Mapping[str, AnyReader] | None = None, others: AnyReader | None = None
) -> Reader[dict[str, Any]]:
    """Accept an object with the fields of `must`, and optionally those of `may`.

    It drops all other fields; if there is a reader `others`, it keeps up to 100 fields that this reader accepts.
    """
    known = {**must, **(may or {})}

    def read(value: object, what: str) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise BadAnswer(what, "an object", value)
        front = f"{what}." if what else ""
        if lacking := [name for name in must if name not in value]:
            raise BadAnswer(f"{front}{lacking[0]}", "a value", None)
        fields = {name: known[name](value[name], f"{front}{name}") for name in known if name in value}
        if others is None:
            return fields
        more = {name: value[name] for name in list(value)[:100] if name not in known and len(name) <= 100}
        further = {name: optional(others)(field, name) for name, field in more.items()}
        return {**{_whole_letters(name): field for name, field in further.items() if field is not None}, **fields}

    return read


def either(*readers: AnyReader) -> AnyReader:
    """Return what the first reader that accepts the value makes of it; if none does, raise the last reader's error."""

    def read(value: object, what: str) -> Any:
        for reader in readers[:-1]:
            try:
                return reader(value, what)
            except BadAnswer:
                continue
        return readers[-1](value, what)

    return read


def optional(reader: Reader[T]) -> Callable[[object, str], T | None]:
    """Make a reader return None for a value that it refuses: a script's own files may contain anything."""

    def read(value: object, what: str = "") -> T | None:
        try:
            return reader(value, what)
        except BadAnswer:
            return None

    return read


def default(reader: Reader[T], instead: T, *blank: object) -> Reader[T]:
    """Make a reader return `instead` for null, for empty text and for the values in `blank`."""

    def read(value: object, what: str) -> T:
        return instead if value is None or value == "" or value in blank else reader(value, what)

    return read


def scalar(value: object, what: str) -> object:
    """Accept a finite number, true, false or text."""
    return either(flag, whole(least=-MOST_WHOLE), real(least=-1e300), words())(value, what)


def tree(depth: int = 8, most: int = 1000) -> AnyReader:
    """Accept any JSON of at most this depth, whose lists and objects each have at most `most` parts."""

    def read(value: object, what: str) -> Any:
        if isinstance(value, dict | list):
            if not depth:
                raise BadAnswer(what, "JSON that is nested less deeply", value)
            inner = tree(depth - 1, most)
            reader: AnyReader = table(text(200), inner, most) if isinstance(value, dict) else array(inner, most)
            return reader(value, what)
        if value is None:
            return None
        return either(flag, whole(least=-MOST_WHOLE), real(least=-1e300), text(1 << 16))(value, what)

    return read


def rows(output: str) -> dict[str, list[str]]:
    """The values by word, from lines of the form `word value`. Only a newline ends a line."""
    values: dict[str, list[str]] = {}
    for line in output.split("\n"):
        word, _, value = line.partition(" ")
        values.setdefault(word, []).append(value.strip())
    return values


def first(rows: Mapping[str, list[str]], word: str) -> str:
    """The first value of a word, or empty text."""
    return rows.get(word, [""])[0]


def _whole_letters(value: str) -> str:
    """The text without lone surrogates: JSON can contain them, but no file or terminal accepts them."""
    return value if value.isascii() else value.encode(errors="replace").decode()
