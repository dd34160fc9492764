"""As much of Go's templates as Muster's commands ask an engine with (`--format`)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from .store import Any

_PARTS = r"(?s)\{\{(.*?)\}\}"
_WORDS = r'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+'


def filled(template: str, value: Any) -> str:
    """The template with the value."""
    pieces = [(number % 2 == 1, part) for number, part in enumerate(re.split(_PARTS, template))]
    return _block(iter(pieces), value, True)


def _block(pieces: Iterator[tuple[bool, str]], value: Any, shown: bool) -> str:
    """The text up to the `end` of this block."""
    text = ""
    while piece := next(pieces, None):
        is_action, part = piece
        if not is_action:
            text += part
            continue
        word, _, rest = part.strip().partition(" ")
        if word == "end":
            break
        if word == "if":
            holds = shown and bool(_expression(rest, value))
            inner = _block(pieces, value, holds)
            text += inner if holds else ""
        elif word == "range":
            rest_of_it = list(pieces)
            items = (_expression(rest, value) if shown else None) or [None]
            for item in items:
                pieces = iter(rest_of_it)
                inner = _block(pieces, item, item is not None)
                text += inner if item is not None else ""
        elif shown:
            text += _shown(_expression(part.strip(), value))
    return text if shown else ""


def _expression(text: str, value: Any) -> Any:
    return _call(_parsed(iter(re.findall(_WORDS, text))), value)


def _parsed(words: Iterator[str]) -> list[Any]:
    tree: list[Any] = []
    for word in words:
        if word == ")":
            break
        tree.append(_parsed(words) if word == "(" else word)
    return tree


def _call(tree: list[Any], value: Any) -> Any:
    first, rest = tree[0], tree[1:]
    functions: dict[str, Callable[..., Any]] = {
        "json": lambda x: json.dumps(x, separators=(",", ":")),
        "index": lambda x, key: (x or {}).get(key, ""),
        "or": lambda *x: next((each for each in x if each), ""),
        "eq": lambda a, b: a == b,
        ".Label": lambda key: (value.get("Labels") or {}).get(key, ""),
    }
    if isinstance(first, str) and first in functions:
        return functions[first](*(_value(each, value) for each in rest))
    return _value(first, value)


def _value(word: Any, value: Any) -> Any:
    if isinstance(word, list):
        return _call(word, value)
    if word.startswith('"'):
        return json.loads(word)
    for name in filter(None, word.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _shown(value: Any) -> str:
    if isinstance(value, list):
        return f"[{' '.join(map(_shown, value))}]"
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
