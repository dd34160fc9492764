"""The subset of Go's templates that Muster's commands use with `--format`."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator

from .store import Any

_PARTS = r"(?s)\{\{(.*?)\}\}"
_WORDS = r'\(|\)|"(?:[^"\\]|\\.)*"|[^\s()"]+'
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "json": lambda value: json.dumps(value, separators=(",", ":")),
    "index": lambda value, key: (value or {}).get(key, ""),
    "or": lambda *values: next(filter(None, values), ""),
    "eq": lambda left, right: left == right,
}


def filled(template: str, value: Any) -> str:
    """Fill in a template with the value."""
    return _shown(_block(iter(re.split(_PARTS, template))), value)


def _block(parts: Iterator[str]) -> list[Any]:
    """Parse the parts up to this block's `end`: texts and, between them, pairs of words and their inner block."""
    tree: list[Any] = []
    for text in parts:
        words = next(parts, "end").strip()
        tree.append(text)
        if words == "end":
            break
        tree.append((words, _block(parts) if words.startswith(("if ", "range ")) else []))
    return tree


def _shown(tree: list[Any], value: Any) -> str:
    text = ""
    for part in tree:
        if isinstance(part, str):
            text += part
            continue
        words, inner = part
        kind, _, rest = words.partition(" ")
        seen = _result(iter(re.findall(_WORDS, rest if inner else words)), value)
        if not inner:
            text += _text(seen)
        elif seen:
            text += "".join(_shown(inner, each) for each in (seen if kind == "range" else [value]))
    return text


def _result(words: Iterator[str], value: Any) -> Any:
    """Evaluate the words up to a closing bracket: a single value, or a function and its arguments."""
    first, *others = [
        _result(words, value) if word == "(" else _named(word, value) for word in iter(lambda: next(words, ")"), ")")
    ]
    return first(*others) if callable(first) else first


def _named(word: str, value: Any) -> Any:
    if word == ".Label":
        return lambda key: (value.get("Labels") or {}).get(key, "")
    if word.startswith('"'):
        return json.loads(word)
    if word in _FUNCTIONS:
        return _FUNCTIONS[word]
    for name in filter(None, word.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
