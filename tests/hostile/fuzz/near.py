"""Texts that almost match a regular expression, made from that expression: the most expensive input for it."""

from __future__ import annotations

import importlib
import pkgutil
import re
from re import _constants as kinds  # type: ignore[attr-defined]
from re import _parser as parser  # type: ignore[attr-defined]

import deploy.explain


def patterns():
    """Every pattern that reads logs and stories, by its place in the code; patterns for bytes are included."""
    found = {}
    inside = [module.name for module in pkgutil.walk_packages(deploy.explain.__path__, "deploy.explain.")]
    for module in (*inside, "deploy.run.own_run"):
        for name, value in vars(importlib.import_module(module)).items():
            for number, pattern in enumerate(_in(value)):
                found.setdefault(pattern, f"{module}.{name}[{number}]")
    return {place: pattern for pattern, place in found.items()}


def almost(pattern, random, size):
    """A text of `size` characters, made from beginnings of a text that the pattern matches."""
    whole = _fitting(_tree(pattern), random) or "x"
    part = whole[: random.choice((len(whole), len(whole) - 1, len(whole) * 2 // 3, len(whole) // 2)) or 1] or "x"
    part += random.choice(("", "", " ", "x"))
    if random.random() < 0.2:
        return (part + random.choice("x 1a") * size)[:size]
    return (part * (size // len(part) + 1))[:size]


def _in(value):
    if isinstance(value, re.Pattern):
        yield value
    elif isinstance(value, tuple | list):
        for each in value:
            yield from _in(each)
    elif isinstance(getattr(value, "pattern", None), re.Pattern):
        yield value.pattern


_TREES = {}


def _tree(pattern):
    if pattern not in _TREES:
        text = pattern.pattern if isinstance(pattern.pattern, str) else pattern.pattern.decode()
        _TREES[pattern] = parser.parse(text, pattern.flags & ~(re.UNICODE if isinstance(pattern.pattern, bytes) else 0))
    return _TREES[pattern]


def _fitting(tree, random):
    text = ""
    for kind, value in tree:
        if kind is kinds.LITERAL:
            text += chr(value)
        elif kind is kinds.IN:
            text += _one_of(value, random)
        elif kind is kinds.BRANCH:
            text += _fitting(random.choice(value[1]), random)
        elif kind is kinds.SUBPATTERN:
            text += _fitting(value[3], random)
        elif kind in (kinds.MAX_REPEAT, kinds.MIN_REPEAT):
            least, most, inner = value
            for _ in range(min(int(most), random.choice((least, least + 1, least + 3)))):
                text += _fitting(inner, random)
        elif kind in (kinds.ANY, kinds.NOT_LITERAL):
            text += "x"
    return text


def _one_of(values, random):
    kind, value = random.choice(values)
    if kind is kinds.LITERAL:
        return chr(value)
    if kind is kinds.RANGE:
        return chr(random.randint(*value))
    return {"CATEGORY_DIGIT": "7", "CATEGORY_SPACE": " "}.get(str(value), "x")
