"""Read a TOML file strictly: every error shows the path of its key and the `name` of its table.

job/cluster.py asks a table for the keys that it knows; all other keys are errors. This module does not know what a key
means.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from ..core import toml_text
from ..core.errors import UsageError
from ..core.suggest import near_match, near_path
from ..core.text import amount
from .options import FLAG

T = TypeVar("T")
KeyPath = tuple[str | int, ...]
# Bytes, enough for ten thousand hosts with an address each; and the most elements of a list.
_MOST, _MOST_ELEMENTS = 1 << 20, 10_000
SHAPE = (
    'put texts in quotes: hosts = ["gpu-a", "me@gpu-b:2222"]; or a table for each: [[hosts]], then name = "gpu-a"'
    " below it"
)


class Table:
    """One table of a file. Ask for every key you know, then call `done`, which refuses all other keys."""

    def __init__(self, path: Path | str, data: dict[str, Any], key_path: KeyPath = (), name: str = "") -> None:
        self.path, self._where, self._data, self._key_path = Path(path), str(path), data, key_path
        self._name = name or (data["name"] if isinstance(data.get("name"), str) else "")
        self._known: list[str] = []

    @property
    def names(self) -> tuple[str, ...]:
        """The keys of this table, in the file's order."""
        return tuple(self._data)

    def get(self, key: str, default: T, check: Callable[[Any], T | None], wanted: str) -> T:
        """The key's value as `check` returns it, or `default` if the file has no such key.

        Raises UsageError, `<value> is not <wanted>`, if `check` returns None.
        """
        self._known.append(key)
        if key not in self._data:
            return default
        value = check(self._data[key])
        if value is None:
            self.refuse(f"{shown(self._data[key])} is not {wanted}", "", key)
        return value

    def items(self, key: str, check: Callable[[Any], T | None], wanted: str, secret: bool = False) -> tuple[T, ...]:
        """The elements of the array `key` as `check` returns them; empty if the file has no such key.

        Raises UsageError for the first element that `check` refuses. The error hides a value that may be a `secret`.
        """
        elements: list[Any] = self.get(key, [], _as(list), f"a list in which each element is {wanted}")
        if len(elements) > _MOST_ELEMENTS:
            self.refuse(f"a list of {len(elements):,}", f"at most {_MOST_ELEMENTS:,}", key)
        good = []
        for index, item in enumerate(elements):
            value = check(item)
            if value is None:
                self.refuse(f"{'this' if secret else shown(item)} is not {wanted}", "", key, index)
            good.append(value)
        return tuple(good)

    def lists_texts(self, key: str) -> bool:
        """Whether the key is a list with texts, not an array of tables."""
        listed = self._data.get(key)
        return isinstance(listed, list) and any(isinstance(item, str) for item in listed)

    def tables(self, key: str) -> list[Table]:
        """An array of tables (`[[key]]`), empty if it is missing."""
        array: list[Any] = self.get(key, [], _list_of_dicts, f"an array of tables: write [[{key}]] above each one")
        return [Table(self.path, data, (*self._key_path, key, index)) for index, data in enumerate(array)]

    def table(self, key: str) -> Table:
        """A table (`[key]`), empty if it is missing."""
        data: dict[str, Any] = self.get(key, {}, _as(dict), f"a table: write [{key}]")
        return Table(self.path, data, (*self._key_path, key), self._name)

    def done(self) -> None:
        """Refuse the first key that the program has not asked for, and suggest the most similar known key."""
        for key in self._data:
            if key not in self._known:
                meant = near_match(key, self._known, 0.6)
                hint = f"did you mean `{meant}`?" if meant else f"known here: {', '.join(sorted(self._known))}"
                self.refuse("unknown key", hint, key)

    def refuse(self, what: str, hint: str = "", *below: str | int) -> NoReturn:
        """Raise UsageError for this table, or for a value `below` it: `cluster.toml: hosts[1].port (gpu-b): ...`."""
        key_path = _dotted((*self._key_path, *below))
        if self._name and below != ("name",):
            key_path += f" ({self._name})"
        raise UsageError(": ".join(filter(None, (self._where, key_path, what))), hint)


def read(path: Path) -> Table:
    """The file's top table. Raises UsageError if it cannot be read, is empty, or is not TOML (with the line)."""
    try:
        with path.open("rb") as file:
            text = file.read(_MOST + 1)
        if len(text) > _MOST:
            raise UsageError(f"{path}: larger than {amount(_MOST)}", "a table for one host needs about a hundred bytes")
        data = toml_text.loads(text.decode("utf-8-sig"))
    except OSError as fault:
        meant = near_path(str(path), ("cluster.toml",))
        hint = (
            f"{FLAG.cluster} {shlex.quote(meant)}"
            if meant.endswith(".toml")
            else f"leave out {FLAG.cluster}, and name the hosts with {FLAG.hosts}"
        )
        raise UsageError(f"{path}: cannot be read: {fault.strerror}", hint) from fault
    except UnicodeDecodeError as fault:
        raise UsageError(f"{path}: not UTF-8 text (byte {fault.start})", "save it as UTF-8") from fault
    except ValueError as fault:
        raise UsageError(f"{path}: not valid TOML: {fault}", SHAPE) from fault
    if not data:
        raise UsageError(f"{path}: empty", SHAPE)
    return Table(path, data)


def _dotted(key_path: KeyPath) -> str:
    """`hosts[1].environment.NAME`."""
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in key_path).removeprefix(".")


def shown(value: Any) -> str:
    """A value as it would be written in the file, shortened."""
    text = {True: "true", False: "false"}[value] if isinstance(value, bool) else repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _as(kind: type[T]) -> Callable[[Any], T | None]:
    return lambda value: value if isinstance(value, kind) else None


def _list_of_dicts(value: Any) -> list[Any] | None:
    return value if isinstance(value, list) and all(isinstance(item, dict) for item in value) else None
