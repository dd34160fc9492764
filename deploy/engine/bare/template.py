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
    parts = re.split(_PARTS, template.replace(".Label ", "index .Labels "))
    return _block([*parts, "end"], 0, value)[0]


def _block(parts: list[str], at: int, value: Any) -> tuple[str, int]:
    """Fill in the parts from `at` to this block's `end`: texts and, between them, words.

    Returns also where the text behind the block is.
    """
    text = parts[at]
    while (words := parts[at + 1].strip()) != "end":
        at += 2
        block = re.fullmatch(r"(if|range) (.*)", words)
        seen = _result(iter(re.findall(_WORDS, block[2] if block else words)), value)
        if block:
            values = (seen or []) if block[1] == "range" else [value] * bool(seen)
            # The last one is not shown: it finds the end of a block without values.
            *shown, (_, at) = [_block(parts, at, each) for each in (*values, None)]
            text += "".join(each for each, _ in shown)
        else:
            text += _text(seen)
        text += parts[at]
    return text, at + 2


def _result(words: Iterator[str], value: Any) -> Any:
    """Evaluate the words up to a closing bracket: a single value, or a function and its arguments."""
    first, *others = [
        _result(words, value) if word == "(" else _named(word, value) for word in iter(lambda: next(words, ")"), ")")
    ]
    return first(*others) if callable(first) else first


def _named(word: str, value: Any) -> Any:
    if word.startswith('"'):
        return json.loads(word)
    if word in _FUNCTIONS:
        return _FUNCTIONS[word]
    for name in filter(None, word.split(".")):
        value = value.get(name) if isinstance(value, dict) else None
    return value


def _text(value: Any) -> str:
    return value if isinstance(value, str) else "" if value is None else json.dumps(value)
