"""The wheels of a lock, fetched here by their hashes: for hosts that reach no index."""

from __future__ import annotations

import re
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from ..core.errors import DeployError
from . import sdists, uv
from .base import Base
from .requirements import Requirements
from .resolve import Question, Resolving
from .settings import Settings
from .store import WHEEL, Lock


def fetch(lock: Lock, base: Base, settings: Settings, folder: Path) -> dict[str, bytes]:
    """Each line's wheels that fit the base, as files of an order. Raises DeployError."""
    with TemporaryDirectory(prefix="muster-packages-") as name:
        tool = uv.Uv(folder, Path(name), settings, lambda words: None)
        nothing = Question(Requirements("", "file", ()), base, (), {}, lambda wanted: [])
        offered = Resolving(nothing, tool, Path(name)).offered(lock.lines)
    pinned = {digest for line in lock.lines for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", line)}
    files = {}
    for package in offered:
        for entry in package.get("wheels") or [package.get("archive") or {}]:
            digest, url = str(entry.get("hashes", {}).get("sha256")), str(entry.get("url"))
            file = unquote(urlsplit(url).path.rpartition("/")[2])
            if digest not in pinned:
                continue
            if not re.fullmatch(WHEEL, file):
                raise DeployError(f"{package.get('name')}: the index names its wheel {file[:100]!r}")
            files[f"wheels/{file}"] = sdists.fetch(url, [digest], settings)
    return files
