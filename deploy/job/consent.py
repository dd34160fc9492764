"""Ask the user before a command does what a folder asks for: once for each folder and each exact wish.

A command opens a gate for as long as it runs (`asking`); the gate knows whom to ask. Code that is about to do what a
folder asks for calls `require` first. If no command has opened a gate, nothing is allowed.
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

# The most characters in a line on the screen, and the most lines that a person is asked to read.
MOST_LETTERS, MOST_LINES = 300, 60
_MOST_ITEMS = 8


@dataclass(frozen=True)
class Wish:
    """One thing that a folder asks for: its kind, and the exact words. An answer applies to `key`, which is never cut.

    Wishes of the same kind and `group` are alike: if there are many, they share one line that lists their `item`s.
    """

    kind: str
    words: str
    group: str = ""
    item: str = ""

    @property
    def key(self) -> str:
        """What an answer applies to: the kind, and every character of the words."""
        return f"{self.kind} {self.words}"

    def shown(self) -> str:
        """The wish on one line of plain characters."""
        return _cut(plain(self.key))


def plain(text: str) -> str:
    r"""Text in unmistakable characters: everything but printable ASCII becomes an escape (`\u0430`, `\n`)."""
    return "".join(
        letter if " " <= letter <= "~" and letter != "\\" else letter.encode("unicode_escape").decode()
        for letter in text
    )


def lines(wishes: Sequence[Wish]) -> list[str]:
    """The wishes as lines, one for each; if there are many, wishes that are alike share a line."""
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
    """Shorten a long text in its middle, and say by how much: neither its beginning nor its end can be hidden."""
    if len(text) <= most:
        return text
    end = most // 3
    return f"{text[: most - end]} [...{len(text) - most:,} characters...] {text[-end:]}"


T = TypeVar("T")


class Asker(Protocol):
    """A console that can show text to a person and ask a question."""

    @property
    def asks(self) -> bool:
        """Whether a person can answer."""

    def ask(self, question: str) -> bool:
        """Ask a question; any answer but yes is a no."""

    def note(self, text: str) -> None:
        """Tell a person."""

    def warn(self, text: str) -> None:
        """Warn a person."""


@dataclass
class ConsentGate:
    """The gate of one command. `allow`: the user allowed everything in advance; `how`: what a user types to do that."""

    asker: Callable[[], Asker]
    allow: bool = False
    how: str = ""
    # By folder, the wishes that this command has already let pass; and the content of each file that it has read.
    _passed: dict[FolderIdentity, set[str]] = field(default_factory=dict)
    _files: dict[tuple[Path, object], Any] = field(default_factory=dict)

    def require(self, folder: Path, wishes: Sequence[Wish], source: str, free: Sequence[Wish] = ()) -> None:
        """Let these wishes pass, or raise UsageError. `free`: settings that are only mentioned."""
        place = allowed.identity_of(folder)
        passed = self._passed.setdefault(place, set())
        new = [wish for wish in wishes if wish.key not in passed]
        if not new:
            return
        console, before = self.asker(), allowed.allowed_wishes(place)
        added = [wish for wish in new if wish.key not in before]
        asked = bool(added) and not self.allow
        if asked:
            _ask(console, added, bool(before), place, source, self.how)
        if not asked:  # if it was asked, the question has just listed the wishes
            _tell(console, new, f"{plain(source)}: ")
        _tell(console, free, f"{plain(source)} sets ")
        passed.update(wish.key for wish in new)
        if added:
            _keep(console, place, passed)

    def forget(self) -> None:
        """Forget the content of files, so that they are read again."""
        self._files.clear()

    def once(self, path: Path, read: Callable[[Path], T]) -> Any:
        """The result of `read` for a file; a second call in the same command gets the result of the first."""
        key = (path.absolute(), read)
        if key not in self._files:
            self._files[key] = read(path)
        return self._files[key]


_CLOSED_GATE = ConsentGate(lambda: _NoAsker())
_GATE: ContextVar[ConsentGate] = ContextVar("consent_gate", default=_CLOSED_GATE)


@contextmanager
def asking(gate: ConsentGate) -> Iterator[None]:
    """Open a gate for the duration of a `with` block. Each time that a program opens it, files are read again."""
    if _GATE.get() is not gate:
        gate.forget()
    token = _GATE.set(gate)
    try:
        yield
    finally:
        _GATE.reset(token)


def require(folder: Path, wishes: Sequence[Wish], source: str, free: Sequence[Wish] = ()) -> None:
    """Return once the user has allowed `folder` all of these wishes, now or before; a command mentions each only once.

    `source`: what asks, in words that the user knows: `cluster.toml`. `free`: settings that need no permission and are
    only mentioned.
    Raises UsageError if the user says no, or cannot be asked.
    """
    if wishes:
        _GATE.get().require(folder, wishes, source, free)


def read_once(path: Path, read: Callable[[Path], T]) -> T:
    """The result of `read` for a file, read once in a command: it uses exactly what the user was asked about."""
    gate = _GATE.get()
    if gate is _CLOSED_GATE:
        return read(path)
    value: T = gate.once(path, read)
    return value


class _NoAsker:
    """The console of the closed gate, which applies if no command has opened one: nobody can answer."""

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
    """Tell the user which wishes are used, or what the file sets without asking."""
    if shown := lines(wishes):
        more = f"; and {len(shown) - MOST_LINES:,} more" if len(shown) > MOST_LINES else ""
        console.note(f"{begin}{'; '.join(shown[:MOST_LINES])}{more}")


def _keep(console: Asker, place: FolderIdentity, keys: set[str]) -> None:
    if why := allowed.save_answers(place, keys):
        console.warn(f"your answer counts for this command only: {why}")
    else:
        console.note(f"your answer is in {allowed.file_of(place)}: delete it to take it back")
