"""What a folder asks for that is the user's to allow, as lines that a person reads before they say yes. Pure.

The words come from a file that anybody may have written: they are shown in plain letters.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

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
    return f"{text[: most - end]} [...{len(text) - most:,} letters...] {text[-end:]}"
