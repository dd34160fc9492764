"""Strict reading of a TOML file: every error names the key's path and its line.

inventory.py asks a table for the keys it knows; all other keys are unknown. This module does not know what a key
means.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..core.errors import UsageError

T = TypeVar("T")
KeyPath = tuple[str | int, ...]

# What may be missing where a file is cut between two lines of one value: the rest of an array or of a long string.
_ENDS = ("", "]", "]]", "]}", "]}]", '"""', "'''", '"""]', "''']")


class Table:
    """One table of a file. Ask for every key you know, then say `done`, which refuses the keys nobody asked for."""

    def __init__(self, path: Path, text: str, data: dict[str, Any], place: KeyPath = ()) -> None:
        self.path, self._text, self._data, self._place = path, text, data, place
        self._known: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The keys the file has here, in its order."""
        return tuple(self._data)

    def get(self, key: str, default: T, check: Callable[[Any], T | None], wanted: str) -> T:
        """The key's value as `check` returns it, or `default` where the file has none.

        Raises UsageError, `<value> is not <wanted>`, where `check` returns None.
        """
        self._known.append(key)
        if key not in self._data:
            return default
        value = check(self._data[key])
        if value is None:
            self.refuse(f"{_shown(self._data[key])} is not {wanted}", "", key)
        return value

    def items(self, key: str, check: Callable[[Any], T | None], wanted: str, secret: bool = False) -> tuple[T, ...]:
        """The elements of the array `key` as `check` returns them, none where the file has none.

        Raises UsageError for the first that is None; it does not show what may be a `secret`.
        """
        found: list[Any] = self.get(key, [], _list, f"a list; each element is {wanted}")
        good = []
        for index, item in enumerate(found):
            value = check(item)
            if value is None:
                self.refuse(f"{'this' if secret else _shown(item)} is not {wanted}", "", key, index)
            good.append(value)
        return tuple(good)

    def tables(self, key: str) -> list[Table]:
        """An array of tables (`[[key]]`), empty where there is none."""
        found: list[Any] = self.get(key, [], _list_of_dicts, f"an array of tables: write [[{key}]] above each one")
        return [Table(self.path, self._text, data, (*self._place, key, index)) for index, data in enumerate(found)]

    def table(self, key: str) -> Table:
        """A table (`[key]`), an empty one where there is none."""
        found: dict[str, Any] = self.get(key, {}, _dict, f"a table: write [{key}]")
        return Table(self.path, self._text, found, (*self._place, key))

    def done(self) -> None:
        """Refuse the first key that nobody asked for, naming the nearest known one."""
        for key in self._data:
            if key not in self._known:
                near = difflib.get_close_matches(key, self._known, 1)
                hint = f"did you mean `{near[0]}`?" if near else f"known here: {', '.join(sorted(self._known))}"
                self.refuse("unknown key", hint, key)

    def refuse(self, what: str, hint: str = "", *below: str | int) -> NoReturn:
        """Raise UsageError for this table, or for what is `below` it: `cluster.toml:7: hosts[1].port: ...`."""
        place = (*self._place, *below)
        where = f": {_dotted(place)}" if place else ""
        raise UsageError(f"{self.path}:{_line(self._text, place)}{where}: {what}", hint)


def read(path: Path) -> Table:
    """The file's top table. Raises UsageError when it cannot be read, is empty or is no TOML (with the line)."""
    try:
        text = path.read_bytes().decode()
        data = tomllib.loads(text)
    except RecursionError as fault:
        raise UsageError(f"{path}: tables are nested too deeply", "each host is a table: [[hosts]]") from fault
    except OSError as fault:
        raise UsageError(f"{path}: cannot be read: {fault.strerror}") from fault
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text (byte {fault.start})", "save it as UTF-8") from fault
    except tomllib.TOMLDecodeError as fault:
        place = re.search(r" \(at (?:line (\d+), column (\d+)|end of document)\)$", str(fault))
        line = place[1] if place and place[1] else str(max(1, text.count("\n") + (not text.endswith("\n"))))
        message = str(fault)[: place.start()] if place else str(fault)
        raise UsageError(f"{path}:{line}: not valid TOML: {message}", 'write strings in quotes: name = "a"') from fault
    if not data:
        raise UsageError(f"{path}: empty", 'each host is a table: [[hosts]], then name = "a" below it')
    return Table(path, text, data)


def _line(text: str, place: KeyPath) -> int:
    """The line (from 1) on which `place` first has a value.

    tomllib tells no lines, but knows all of TOML: the first line that, with those above it, parses to something with
    `place` in it is the one, be it a header, a dotted key or an element of an array. Found by halving.
    """
    lines = text.splitlines()
    low, high = 1, max(1, len(lines))
    while low < high:
        middle = (low + high) // 2
        if _has(_parsed(lines, middle), place):
            high = middle
        else:
            low = middle + 1
    return low


def _parsed(lines: list[str], count: int) -> Any:
    """What the first `count` lines say, or as many of them as say something whole."""
    for end in range(count, 0, -1):
        for missing in _ENDS:
            try:
                return tomllib.loads("\n".join(lines[:end]) + "\n" * missing.startswith("]") + missing)
            except tomllib.TOMLDecodeError:
                continue
    return {}


def _has(data: Any, place: KeyPath) -> bool:
    for key in place:
        try:
            data = data[key]
        except (KeyError, IndexError, TypeError):
            return False
    return True


def _dotted(place: KeyPath) -> str:
    """`hosts[1].environment.NAME`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place).removeprefix(".")


def _shown(value: Any) -> str:
    """A value as the file would have it, shortened."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _list(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) else None


def _dict(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def _list_of_dicts(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else None
