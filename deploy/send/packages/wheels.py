"""The wheels of a lock, fetched here by their hashes: for hosts that reach no index."""

from __future__ import annotations

import mmap
import re
from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import unquote, urlsplit

from ...core.errors import DeployError
from . import sdists, uv
from .base import Base
from .exchange import Files
from .requirements import Requirements
from .resolve import Question, Resolving
from .settings import Settings
from .store import WHEEL


def fetch(lines: Sequence[str], base: Base, settings: Settings, folder: Path) -> Files:
    """Each line's wheels that fit the base, as files of an order. Raises DeployError."""
    with TemporaryDirectory(prefix="muster-packages-") as name:
        tool = uv.Uv(folder, Path(name), settings, lambda words: None)
        nothing = Question(Requirements("", "file", ()), base, (), {}, {}, lambda wanted: [])
        offered = Resolving(nothing, tool, Path(name)).offered(lines) if lines else []
    pinned = {digest for line in lines for digest in re.findall(r"--hash=sha256:([0-9a-f]{64})", line)}
    files = dict[str, bytes | mmap.mmap]()
    for offer in offered:
        for wheel in offer.wheels:
            file = unquote(urlsplit(wheel.address).path.rpartition("/")[2])
            if wheel.sha256 not in pinned:
                continue
            if not re.fullmatch(WHEEL, file):
                raise DeployError(f"{offer.name}: the index names its wheel {file[:100]!r}")
            files[f"wheels/{file}"] = sdists.fetch(wheel.address, [wheel.sha256], settings)
    return files
