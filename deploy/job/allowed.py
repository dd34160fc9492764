"""What a user has allowed a folder to ask for, and which other users own the folder or its work tree.

The answers are stored in the user's configuration folder: muster/allowed/DIGEST.json, one file per folder. Only the
user can read and write each file (0600 in 0700); it is replaced as a whole, and sealed (core/provenance.py), so a file
that came with a folder is not believed. To take an answer back, delete its file. Under sudo, the user who called sudo
counts as an owner too.
"""

from __future__ import annotations

import hashlib
import json
import os
import pwd
import re
import secrets
import stat
from collections.abc import Collection, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..core import provenance
from ..core.formats import ALLOWED

_MOST = 8 << 20  # bytes; the answers for ten thousand hosts take less than 2 MB


@dataclass(frozen=True)
class FolderIdentity:
    """A folder of this machine: its real path, device and inode. Another clone at the same path has a new identity."""

    path: str
    device: int
    inode: int


def identity_of(folder: Path) -> FolderIdentity:
    """The identity of an existing folder. Raises OSError."""
    real = os.path.realpath(folder)
    facts = os.stat(real)
    return FolderIdentity(real, facts.st_dev, facts.st_ino)


def file_of(place: FolderIdentity) -> Path:
    """The path of the file with a folder's answers; it may not exist. Raises OSError for a user without a home."""
    home = os.environ.get("XDG_CONFIG_HOME", "")
    base = Path(home if os.path.isabs(home) else os.path.expanduser("~/.config"))
    if not base.is_absolute():
        raise OSError("this user has no home")
    digest = hashlib.sha256(json.dumps(asdict(place), sort_keys=True).encode()).hexdigest()
    return base / "muster" / "allowed" / f"{digest[:32]}.json"


def allowed_wishes(place: FolderIdentity) -> frozenset[str]:
    """The keys of the wishes that the user has allowed this folder; none if the file cannot be believed."""
    with suppress(OSError, ValueError, RecursionError):
        path = file_of(place)
        if _is_planted(path, place):
            return frozenset()
        with closing(_Folder(path.parent)) as folder:
            document = folder.read(path.name)
        keys = document.get("allowed")
        is_known = document.get("format") == ALLOWED and document.get("folder") == asdict(place)
        if (
            is_known
            and provenance.is_ours(document)
            and isinstance(keys, list)
            and all(isinstance(key, str) for key in keys)
        ):
            return frozenset(keys)
    return frozenset()


def save_answers(place: FolderIdentity, keys: Collection[str]) -> str:
    """Add these keys to what the folder was allowed before. Returns why that was not possible, or empty text."""
    try:
        path = file_of(place)
        if _is_planted(path, place):
            return f"{path.parent} is in the folder that asks"
        _make(path.parent)
        with closing(_Folder(path.parent, tighten=True)) as folder:
            both = sorted({*allowed_wishes(place), *keys})
            document = {"format": ALLOWED, "folder": asdict(place), "allowed": both}
            folder.write(path.name, provenance.sealed(document))
    except OSError as fault:
        return f"{fault.filename}: {fault.strerror}" if fault.filename else str(fault)
    return "" if allowed_wishes(place) >= set(keys) else f"Muster would not trust {path}"


class _Folder:
    """The folder with the answers, held open. Raises OSError if it is a link, or if others can use it."""

    def __init__(self, path: Path, tighten: bool = False) -> None:
        self._path = path
        self._open = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        try:
            if tighten and os.fstat(self._open).st_uid == os.geteuid():
                os.fchmod(self._open, 0o700)
            _refuse_others(os.fstat(self._open), path)
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """Close the folder."""
        os.close(self._open)

    def read(self, name: str) -> dict[str, Any]:
        """Read a file in the folder as JSON. Raises OSError, ValueError."""
        number = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=self._open)
        with os.fdopen(number, "rb") as file:
            facts = os.fstat(number)
            _refuse_others(facts, self._path / name)
            if not stat.S_ISREG(facts.st_mode) or facts.st_size > _MOST:
                raise OSError(f"{name} is not a file of answers")
            document = json.loads(file.read(_MOST))
        return document if isinstance(document, dict) else {}

    def write(self, name: str, document: dict[str, Any]) -> None:
        """Replace a file in the folder as a whole: if two commands write at the same time, one wins. Raises OSError."""
        aside = f".{secrets.token_hex(8)}"
        number = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=self._open)
        try:
            with os.fdopen(number, "w") as file:
                json.dump(document, file, indent=1)
            os.replace(aside, name, src_dir_fd=self._open, dst_dir_fd=self._open)
        except OSError:
            with suppress(OSError):
                os.unlink(aside, dir_fd=self._open)
            raise


def _refuse_others(facts: os.stat_result, path: Path) -> None:
    if facts.st_uid != os.geteuid() or stat.S_IMODE(facts.st_mode) & 0o077:
        raise PermissionError(0, "users other than you can write or read it", str(path))


def _make(path: Path) -> None:
    """Make the folder. Raises OSError below another user's folder: root would leave a folder there that root owns."""
    above = next(parent for parent in path.parents if parent.exists())
    if not path.exists() and above.stat().st_uid not in (os.geteuid(), 0):
        raise PermissionError(0, "it belongs to another user", str(above))
    path.mkdir(mode=0o700, parents=True, exist_ok=True)


def _is_planted(path: Path, place: FolderIdentity) -> bool:
    """Whether the answers are inside the work tree that asks, and so may have come with it.

    A work tree whose top is the user's home directory does not count.
    """
    top = top_of(Path(place.path))
    with suppress(KeyError):
        if str(top) == os.path.realpath(pwd.getpwuid(os.geteuid()).pw_dir):
            return False
    return Path(os.path.realpath(path)).is_relative_to(top)


def other_owner(folder: Path, *files: Path) -> str:
    """The name of another user who owns the folder, one of these files, or the git work tree around it; or ""."""
    ours = own_users()
    for path in (*files, *_tree(Path(os.path.realpath(folder)))):
        # Look at a link and at its target: the owner of either decides what is read.
        for facts in (os.lstat, os.stat):
            with suppress(OSError):
                if (number := facts(path).st_uid) not in ours:
                    return _name(number)
    return ""


def own_users() -> set[int]:
    """The id of this user; for root, also of the user who called sudo (git does the same)."""
    own, by_sudo = os.geteuid(), os.environ.get("SUDO_UID", "")
    return {own, int(by_sudo)} if own == 0 and re.fullmatch(r"[0-9]{1,9}", by_sudo) else {own}


def top_of(folder: Path) -> Path:
    """The top of the git work tree around a folder (a real path); outside of any work tree, the folder itself."""
    return next((above for above in (folder, *folder.parents) if os.path.lexists(above / ".git")), folder)


def _tree(folder: Path) -> Iterator[Path]:
    """The folder, the folders above it up to the top of its work tree, and the .git there."""
    top = top_of(folder)
    yield from (above for above in (folder, *folder.parents) if above.is_relative_to(top))
    yield top / ".git"


def _name(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return f"uid {number}"
