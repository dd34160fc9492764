"""Read which files an index offers for pinned packages, from a pylock.toml that uv wrote. Checks each value. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ...core import toml_text
from ...core.errors import BadAnswer, DeployError
from ...core.fields import array, record, text
from .inside.tools import normal
from .store import MOST_LINES, NAME

HINT = "pip config list shows the index; a requirements file may set another one"


def _address(value: object, what: str) -> str:
    """An address or a path that a library can parse."""
    address = text(4096)(value, what)
    try:
        _ = urlsplit(address).port
    except ValueError as fault:
        raise BadAnswer(what, "an address", address) from fault
    return address


_FILE = record({}, {"hashes": record({}, {"sha256": text(64, "[0-9a-f]{64}")}), "url": _address, "path": _address})
_ROWS = array(record({"name": text(200, NAME)}, {"wheels": array(_FILE), "sdist": _FILE, "archive": _FILE}), MOST_LINES)


@dataclass(frozen=True)
class File:
    """A file in an index: its address and its SHA-256 digest, which is empty if the index does not give one."""

    address: str = ""
    sha256: str = ""


@dataclass(frozen=True)
class Offer:
    """A package in an index: its normalized name, its wheels, and its source archive."""

    name: str
    wheels: tuple[File, ...]
    source: File


def read(content: str, check: Callable[[str, str], None]) -> list[Offer]:
    """The packages in a pylock.toml. `check(name, address)` may refuse a file's address. Raises DeployError."""
    try:
        rows = _ROWS(toml_text.loads(content).get("packages") or [], "packages")
    except (ValueError, BadAnswer) as fault:
        raise DeployError(f"what the index offers, as uv wrote it down: {fault}", HINT) from fault
    offers = [
        Offer(
            normal(row["name"]),
            tuple(map(_file, row.get("wheels", ()))),
            _file(row.get("sdist") or row.get("archive") or {}),
        )
        for row in rows
    ]
    for offer in offers:
        for file in (*offer.wheels, offer.source):
            check(offer.name, file.address)
    return offers


def _file(row: Mapping[str, Any]) -> File:
    return File(row.get("url") or row.get("path") or "", row.get("hashes", {}).get("sha256", ""))
