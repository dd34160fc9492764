"""The door between what a folder asks for and what is done: a person says yes once for a folder and its words.

A command opens the door for its time (`asking`): it knows whom to ask. Whoever is about to do what a folder asks for
calls `require` first. Where no command has opened a door, nothing is allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeVar

from ..core.errors import UsageError
from . import allowed
from .allowed import FolderIdentity

# Letters of a line on the screen, and how many lines a person is asked to read.
MOST_LETTERS, MOST_LINES = 300, 60
_MOST_ITEMS = 8


@dataclass(frozen=True)
class Wish:
    """One thing that a folder asks for: its kind, and exactly which. An answer is bound to `key`, which is never cut.

    Wishes of a kind with the same `group` are alike: where there are many, they share a line that names them by `item`.
    """

    kind: str
    words: str
    group: str = ""
    item: str = ""

    @property
    def key(self) -> str:
        """What an answer is bound to: the kind, and every letter of the words."""
        return f"{self.kind} {self.words}"

    def shown(self) -> str:
        """The wish on one line of plain letters."""
        return _cut(plain(self.key))


def plain(text: str) -> str:
    r"""Text in letters that look like no others: all but printable ASCII is an escape (`\u0430`, `\n`)."""
    return "".join(
        letter if " " <= letter <= "~" and letter != "\\" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def lines(wishes: Sequence[Wish]) -> list[str]:
    """The wishes as lines, one each; of many, those that are alike share one."""
    if len(wishes) <= MOST_LINES // 2:
        return [wish.shown() for wish in wishes]
    groups: dict[tuple[str, str], list[Wish]] = {}
    for wish in wishes:
        groups.setdefault((wish.kind, wish.group or wish.words), []).append(wish)
    return [_line(alike) for alike in groups.values()]


def _line(alike: list[Wish]) -> str:
    first, *more = alike
    if not more:
        return first.shown()
    names = ", ".join(_cut(plain(wish.item), 80) for wish in alike[:_MOST_ITEMS])
    if rest := len(alike) - _MOST_ITEMS:
        names += f" and {rest:,} more" if rest > 0 else ""
    return f"{_cut(plain(f'{first.kind} {first.group}'))}: {names}"


def _cut(text: str, most: int = MOST_LETTERS) -> str:
    """The text, its middle replaced by how much of it is not shown: neither its begin nor its end can hide."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]} [...{len(text) - most:,} characters...] {text[-end:]}"


T = TypeVar("T")


class Asker(Protocol):
    """Who shows and asks: a console."""

    @property
    def asks(self) -> bool:
        """Whether a person can answer."""

    def ask(self, question: str) -> bool:
        """Ask; anything but yes is no."""

    def note(self, text: str) -> None:
        """Tell a person."""

    def warn(self, text: str) -> None:
        """Warn a person."""


@dataclass
class Door:
    """The door of one command. `allow`: the user allows what is asked for; `how`: what a user types to do so."""

    asker: Callable[[], Asker]
    allow: bool = False
    how: str = ""
    # What was allowed or said in this command, by place; what was read of each file.
    _passed: dict[FolderIdentity, set[str]] = field(default_factory=dict)
    _files: dict[tuple[Path, object], Any] = field(default_factory=dict)

    def require(self, folder: Path, wishes: Sequence[Wish], source: str, free: Sequence[Wish] = ()) -> None:
        """Let these wishes pass, or raise UsageError. `free`: what is only said."""
        place = allowed.place_of(folder)
        passed = self._passed.setdefault(place, set())
        new = [wish for wish in wishes if wish.key not in passed]
        if not new:
            return
        console, before = self.asker(), allowed.allowed(place)
        added = [wish for wish in new if wish.key not in before]
        asked = bool(added) and not self.allow
        if asked:
            _ask(console, added, bool(before), place, source, self.how)
        if not asked:  # the question has just said it
            _tell(console, new, f"{plain(source)}: ")
        _tell(console, free, f"{plain(source)} sets ")
        passed.update(wish.key for wish in new)
        if added:
            _keep(console, place, passed)

    def forget(self) -> None:
        """Read files anew from now on."""
        self._files.clear()

    def once(self, path: Path, read: Callable[[Path], T]) -> Any:
        """What `read` makes of a file: of two calls in this command the second gets what the first one got."""
        key = (path.absolute(), read)
        if key not in self._files:
            self._files[key] = read(path)
        return self._files[key]


_CLOSED = Door(lambda: _Nobody())
_DOOR: ContextVar[Door] = ContextVar("door", default=_CLOSED)


@contextmanager
def asking(door: Door) -> Iterator[None]:
    """Open a door for as long as this lasts. A program opens one several times: files are read anew each time."""
    if _DOOR.get() is not door:
        door.forget()
    token = _DOOR.set(door)
    try:
        yield
    finally:
        _DOOR.reset(token)


def require(folder: Path, wishes: Sequence[Wish], source: str, free: Sequence[Wish] = ()) -> None:
    """Return once the user has allowed `folder` all of these wishes, now or before; each command says them once.

    `source`: who asks, as a person knows it: `cluster.toml`. `free`: what it sets unasked, which is said beside them.
    Raises UsageError if the user says no, or cannot be asked.
    """
    if wishes:
        _DOOR.get().require(folder, wishes, source, free)


def once(path: Path, read: Callable[[Path], T]) -> T:
    """What `read` makes of a file, read once in a command: what was asked about is what is used."""
    door = _DOOR.get()
    if door is _CLOSED:
        return read(path)
    value: T = door.once(path, read)
    return value


class _Nobody:
    """Where no command has opened a door."""

    asks = False

    def ask(self, question: str) -> bool:
        return False

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        pass


def _ask(console: Asker, added: Sequence[Wish], again: bool, place: FolderIdentity, source: str, how: str) -> None:
    """Return if the user says yes. Raises UsageError."""
    shown = lines(added)
    what = (
        f"{plain(source)}: this folder, {plain(place.path)}, {'now also ' * again}asks for things that only you "
        "can allow"
    )
    hint = f"if you trust that folder: {how}"
    if len(shown) > MOST_LINES:
        few = f"({len(shown):,} lines, too many to read before you answer)"
        raise UsageError("\n".join([f"{what}:", *shown[: MOST_LINES // 2], few]), f"read its files; {hint}")
    if not console.asks:
        raise UsageError("\n".join([f"{what}, and there is no terminal to ask you on:", *shown]), hint)
    console.warn("\n    ".join([f"{what}:", *shown]))
    if not console.ask("allow it?"):
        raise UsageError(
            f"{plain(source)}: you did not allow it; nothing was done", "take it out of the file, or answer yes"
        )


def _tell(console: Asker, wishes: Sequence[Wish], begin: str) -> None:
    """Say what is used, or what the file sets by itself."""
    if shown := lines(wishes):
        more = f"; and {len(shown) - MOST_LINES:,} more" if len(shown) > MOST_LINES else ""
        console.note(f"{begin}{'; '.join(shown[:MOST_LINES])}{more}")


def _keep(console: Asker, place: FolderIdentity, keys: set[str]) -> None:
    if why := allowed.keep(place, keys):
        console.warn(f"your answer counts for this command only: {why}")
    else:
        console.note(f"your answer is in {allowed.file_of(place)}: delete it to take it back")
