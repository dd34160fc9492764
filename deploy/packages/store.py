"""Locks that were made before, on this machine: the same requirements on the same base get the same packages again.

A lock is a folder ~/.cache/muster/packages/KEY with lock.json and the wheels that were built for it.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from ..core.errors import BadAnswer
from ..core.fields import array, default, document, record, table, text

FORMAT = 1
_HASHES = r"( --hash=sha256:[0-9a-f]{64}){1,500}"
_NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}"
# Nothing else: a line comes from a host, and all hosts obey it.
LINE = rf"{_NAME}==[A-Za-z0-9.!+_-]{{1,200}}{_HASHES}|{_NAME} @ https://[!-~]{{1,2000}}{_HASHES}"
WHEEL = r"[A-Za-z0-9][A-Za-z0-9._!+-]{0,250}\.whl"
LOCK = record(
    {
        "lock": array(text(60_000, LINE), 5000),
        "left_out": default(array(text(200, _NAME), 5000), []),
        "base": table(text(200, _NAME), text(200, r"[!-~]*"), 5000),
    }
)


@dataclass(frozen=True)
class Lock:
    """One resolution. `lines`: each package with its hashes. `wheels`: those that were built, by file name.

    `left_out`: what only a base with CUDA would have. `files`: the digest of the installed files; empty: not known yet.
    """

    lines: tuple[str, ...]
    left_out: tuple[str, ...] = ()
    base: Mapping[str, str] = field(default_factory=dict, hash=False)
    wheels: Mapping[str, bytes] = field(default_factory=dict, hash=False, repr=False)
    files: str = ""

    def digest(self, *more: object) -> str:
        """A digest of what is installed, on the base that `more` says."""
        return hashlib.sha256(json.dumps([FORMAT, sorted(self.lines), more]).encode()).hexdigest()[:32]


def default_folder() -> Path:
    """Where locks are: below $XDG_CACHE_HOME, else ~/.cache."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "muster" / "packages"


def find(key: str, folder: Path) -> Lock | None:
    """The lock of that key; None if there is none, or its folder is damaged."""
    try:
        value = document((folder / key / "lock.json").read_bytes(), "lock.json")
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            return None
        read = LOCK({name: value.get(name) for name in ("lock", "left_out", "base")}, "lock.json")
        wheels = {path.name: path.read_bytes() for path in (folder / key).glob("*.whl")}
    except (OSError, BadAnswer):
        return None
    lock = Lock(tuple(read["lock"]), tuple(read["left_out"]), read["base"], wheels, str(value.get("files") or ""))
    return (
        lock
        if value.get("wheels") == sorted(wheels) and all(_is_whole(lock, data) for data in wheels.values())
        else None
    )


def keep(key: str, lock: Lock, folder: Path) -> None:
    """Write the lock whole, or nothing. A full disk here costs only time the next time."""
    part = folder / f"{key}.{secrets.token_hex(4)}.part"
    values = {name: value for name, value in asdict(lock).items() if name not in ("wheels", "lines")}
    try:
        part.mkdir(parents=True)
        for name, data in lock.wheels.items():
            (part / name).write_bytes(data)
        written = {"format": FORMAT, "lock": list(lock.lines), "wheels": sorted(lock.wheels), **values}
        (part / "lock.json").write_text(json.dumps(written, indent=1))
        shutil.rmtree(folder / key, ignore_errors=True)
        part.rename(folder / key)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)


def _is_whole(lock: Lock, wheel: bytes) -> bool:
    mark = f"--hash=sha256:{hashlib.sha256(wheel).hexdigest()}"
    return any(re.search(rf"{mark}( |$)", line) for line in lock.lines)
