"""Fetch archives by address, once the user has allowed it, and read a wheel's metadata.

uv on this machine and the hosts never get the address; and uv on this machine does not get the wheel either: it
resolves with a stub made from the metadata.
"""

from __future__ import annotations

import hashlib
import io
import mmap
import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from ....core.errors import UsageError
from ....core.text import amount
from ..inside import wheel as inside
from ..inside.tools import Stop
from ..requirements import Requirements
from ..settings import Settings, without_logins
from ..store import Content


@dataclass(frozen=True)
class Wheel:
    """A wheel that is installed as it is: its file name, SHA-256 and metadata. `python`: its Requires-Python."""

    file: str
    sha256: str
    name: str
    version: str
    requires: tuple[str, ...]
    extras: tuple[str, ...]
    python: str


def fetch_all(needs: Requirements, settings: Settings, tell: Callable[[str], None]) -> dict[str, Content]:
    """The archives that files refer to by address, by this address. Raises DeployError."""
    if not needs.remote:
        return {}
    from . import sdists  # an HTTP library that few deploys need

    fetched = dict[str, Content]()
    for address, pins in needs.remote:
        tell(f"fetching {without_logins(address)} here")
        fetched[address] = sdists.fetch(address, pins, settings)
        tell(f"fetched {file_of(address)}, {amount(len(fetched[address]))}")
    return fetched


def wheels(contents: Iterable[tuple[str, Content]]) -> dict[str, Wheel]:
    """The wheels among these files, by their path or address. Raises UsageError for one that cannot be read."""
    return {word: _read(file_of(word), content, without_logins(word)) for word, content in contents if is_wheel(word)}


def is_wheel(word: str) -> bool:
    """Whether a path or an address is that of a wheel."""
    return file_of(word).endswith(".whl")


def file_of(word: str) -> str:
    """The file name at the end of a path or an address."""
    return unquote(urlsplit(word).path.rpartition("/")[2]) if word.startswith("http") else word.rpartition("/")[2]


def _read(file: str, content: Content, shown: str) -> Wheel:
    """Read a wheel's metadata, within the limits that apply to built wheels."""
    hint = "name a wheel as an index has it: NAME-VERSION-py3-none-any.whl"
    try:
        fields = inside.described(file, opened(content), len(content))
    except (Stop, *inside.UNREADABLE) as fault:
        raise UsageError(f"{shown}: no wheel that can be read: {getattr(fault, 'words', fault)}", hint) from fault
    digest = hashlib.sha256(content).hexdigest()
    python = fields["python"] if re.fullmatch(r"[\w\s.,<>=!~*]*", fields["python"]) else ""
    head = (fields["name"], fields["version"], tuple(fields["requires"]), tuple(fields["extras"]))
    return Wheel(file, digest, *head, python)


def opened(content: Content) -> Any:
    """A content as a file object, positioned at its beginning."""
    if isinstance(content, bytes):
        return io.BytesIO(content)
    content.seek(0)
    return content if hasattr(content, "seekable") else _Mapped(content)


class _Mapped:
    """A mapped file for zipfile: before Python 3.13, an mmap has no `seekable`."""

    def __init__(self, content: mmap.mmap) -> None:
        self.read, self.seek, self.tell = content.read, content.seek, content.tell

    def seekable(self) -> bool:
        """Always true."""
        return True
