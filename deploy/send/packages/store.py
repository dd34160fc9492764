"""Locks made earlier, kept on this machine: the same requirements on the same base get the same packages again.

A lock is a folder ~/.cache/muster/packages/KEY with lock.json and the git sources that were fetched for it. It has no
file from a host: only what this machine resolved and fetched, and what all hosts reported alike.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import os
import secrets
import shutil
import stat
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import IO, TypeVar

from ...core import plain_file
from ...core.errors import BadAnswer, DeployError
from ...core.fields import array, default, document, flag, record, table, text
from ...core.text import DAY
from ...run.files import locks

T = TypeVar("T")
# The content of a file; a large one stays on the disk.
Content = bytes | mmap.mmap
FORMAT = 4
# The suffix of what a killed command leaves; the next command removes it when it is older than a day.
PART = ".part"
_HASHES = r"( --hash=sha256:[0-9a-f]{64}){1,500}"
NAME = r"[A-Za-z0-9][A-Za-z0-9._-]{0,200}"
VERSION = r"[A-Za-z0-9.!+_-]{1,200}"
# Nothing else is accepted: no option, no path on a host or on this machine.
LINE = rf"{NAME}==[A-Za-z0-9.!+_-]{{1,200}}{_HASHES}"
MOST_LINES = 5000
_MOST = 1 << 30  # the most bytes of a file
WHEEL = r"[A-Za-z0-9][A-Za-z0-9._!+-]{0,250}\.whl"
_DIGEST = r"[0-9a-f]{64}"
_SOURCE = record(
    {
        "key": text(32, "[0-9a-f]{32}"),
        "kind": text(10, "index|folder|git|archive"),
        "place": text(60_000),
        "url": text(3000, r"[!-~]*"),
        "name": text(200, NAME),
        "version": text(200, f"({VERSION})?"),
        "requires": array(text(4000)),
        "extras": array(text(200, NAME)),
        "subdirectory": text(1000),
        "editable": flag,
        "described": flag,
    }
)
_LOCK = record(
    {
        "lines": array(text(60_000, LINE), MOST_LINES),
        "sources": array(_SOURCE),
        "left_out": default(array(text(200, NAME), 5000), []),
        "torch": text(200, r"[!-~]*"),
        "files": text(64, f"({_DIGEST})?"),
        "fetched": table(text(255, rf"(git|archive)-[0-9]{{1,3}}\.tar|{WHEEL}"), text(64, _DIGEST), 300),
    }
)


@dataclass(frozen=True)
class Source:
    """A package that each host builds for itself; `key` changes with its content.

    place: a line of a lock, a path in the folder, or the name of a fetched file. url: its address in an index.
    described: what it needs is known only from a build; otherwise its own files tell. taken: requirements that it takes
    from somewhere other than an index; used only while a lock is made.
    """

    key: str
    kind: str
    place: str
    name: str = ""
    version: str = ""
    requires: tuple[str, ...] = ()
    extras: tuple[str, ...] = ()
    subdirectory: str = ""
    editable: bool = False
    described: bool = False
    url: str = ""
    taken: tuple[str, ...] = ()


@dataclass(frozen=True)
class Lock:
    """One resolution. `lines`: each package from an index, with the index's own hashes. `sources`: what hosts build.

    `left_out`: what only a base with CUDA would have. `torch`: the base's torch. `files`: the digest of the installed
    files that are not built; empty if not known yet. `fetched`: git sources and archives that this machine fetched, by
    name.
    """

    lines: tuple[str, ...]
    sources: tuple[Source, ...] = ()
    left_out: tuple[str, ...] = ()
    torch: str = ""
    files: str = ""
    fetched: Mapping[str, Content] = field(default_factory=dict, hash=False, repr=False)

    def digest(self, *more: object) -> str:
        """A digest of what is installed, on the base that `more` identifies."""
        keys = sorted(source.key for source in self.sources)
        return hashlib.sha256(json.dumps([FORMAT, sorted(self.lines), keys, more]).encode()).hexdigest()[:32]

    @property
    def count(self) -> int:
        """The number of packages in it."""
        return len(self.lines) + len(self.sources)


def own(folder: Path) -> Path:
    """Make the folder, private to this user. Raises DeployError if others could write there and so choose packages."""
    for path in (locks.own_folder(folder), folder.parent):
        facts = path.stat()
        if facts.st_uid not in (os.getuid(), 0) or facts.st_mode & stat.S_IWOTH or _is_group_writable(facts):
            raise DeployError(
                f"{path}: another user can write there, and could choose what hosts install",
                f"chmod go-w {path}; or set your own cache folder: XDG_CACHE_HOME",
            )
    for part in folder.glob(f"*{PART}"):
        with suppress(OSError):  # another command may remove it, too
            if time.time() - part.stat().st_mtime > DAY:
                shutil.rmtree(part)
    return folder


def find(key: str, folder: Path) -> Lock | None:
    """The lock with that key; None if there is none, or if its folder is damaged."""
    try:
        value = document(read(folder / key / "lock.json"), "lock.json", most=16 << 20)
        if not isinstance(value, dict) or value.pop("format", 0) != FORMAT:
            return None
        got = _LOCK(value, "lock.json")
        fetched = {name: _read(folder / key / name, _mapped) for name in got["fetched"]}
    except BadAnswer:
        return None
    if any(hashlib.sha256(data).hexdigest() != got["fetched"][name] for name, data in fetched.items()):
        return None
    sources = [
        Source(**{**row, "requires": tuple(row["requires"]), "extras": tuple(row["extras"])}) for row in got["sources"]
    ]
    return Lock(tuple(got["lines"]), tuple(sources), tuple(got["left_out"]), got["torch"], got["files"], fetched)


def keep(key: str, lock: Lock, folder: Path) -> None:
    """Write the lock completely or not at all. If the disk is full, the next deploy only takes longer."""
    part = folder / f"{key}.{secrets.token_hex(4)}{PART}"
    values = asdict(replace(lock, fetched={}))
    fetched = {name: hashlib.sha256(data).hexdigest() for name, data in lock.fetched.items()}
    try:
        part.mkdir(parents=True, mode=0o700)
        for name, data in lock.fetched.items():
            (part / name).write_bytes(data)
        (part / "lock.json").write_text(json.dumps({"format": FORMAT, **values, "fetched": fetched}, indent=1))
        shutil.rmtree(folder / key, ignore_errors=True)
        part.rename(folder / key)
    except OSError:
        shutil.rmtree(part, ignore_errors=True)


def drop(key: str, folder: Path) -> None:
    """Delete a lock."""
    shutil.rmtree(folder / key, ignore_errors=True)


def read(path: Path) -> bytes:
    """A file that this user or root wrote; empty if there is none, or if somebody else could have written it."""
    return _read(path, lambda file: file.read())


def _read(path: Path, how: Callable[[IO[bytes]], T]) -> T | bytes:
    with suppress(OSError), open(plain_file.open_plain(path), "rb") as file:
        facts = os.fstat(file.fileno())
        mine = facts.st_uid in (os.getuid(), 0) and not facts.st_mode & stat.S_IWOTH and not _is_group_writable(facts)
        if mine and facts.st_size <= _MOST:
            return how(file)
    return b""


def _mapped(file: IO[bytes]) -> Content:
    if os.fstat(file.fileno()).st_size <= 1 << 20:
        return file.read()
    return mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)


def _is_group_writable(facts: os.stat_result) -> bool:
    """Whether a group other than the user's own may write. Many systems give each user their own group."""
    return bool(facts.st_mode & stat.S_IWGRP) and facts.st_gid not in (os.getgid(), 0)
