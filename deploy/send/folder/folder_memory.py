"""What this machine remembers of a folder: the digests of its files, and its content at earlier pushes.

It is stored in ~/.cache/muster/folders/NAME. `files` has each file's record with its size, times and inode, which are
what rsync compares. `DIGEST.LISTING` is a content that hosts may have (content.py); the newest few are kept.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from ..remember import remember
from . import content, left_out
from .content import Content, Entry
from .credentials import SendChoice

_FORMAT, _CONTENTS, _FOLDERS = "muster folder 4", 3, 50
_NAME = re.compile(r"([0-9a-f]{64})\.([0-9a-f]{64})")
_RECENT_S = 2.0  # a file that has just changed can change again within the same timestamp
_MOST_REREAD_BYTES, _MOST_REREAD_FILES = 8 << 20, 500


class FolderMemory:
    """What is remembered of one folder. If it cannot be read or written, the next push only takes longer."""

    def __init__(self, cache: Path, folder: Path) -> None:
        self._folder, self._all = folder, cache / "folders"
        self._place = self._all / hashlib.sha256(os.fsencode(folder.resolve())).hexdigest()[:32]
        self._stamps: dict[str, str] = {}
        self._records: dict[str, str] = {}
        self._is_new, self._began = False, 0.0
        names = [match for path in self._newest() if (match := _NAME.fullmatch(path.name))]
        # Listings by digest, the newest first.
        self.listings = {match[1]: match[2] for match in names}

    def load(self, choice: SendChoice) -> None:
        """Read the records. Files that have not changed are known to hold no credential, and are not searched again."""
        with suppress(OSError, ValueError, IndexError):
            form, salt, judged, *rows = os.fsdecode((self._place / "files").read_bytes()).split("\0")
            if form == _FORMAT and len(rows) % 3 == 0 and judged == _judged(salt, choice):
                self._stamps = dict(zip(rows[::3], rows[1::3], strict=True))
                self._records = dict(zip(rows[::3], rows[2::3], strict=True))
                left_out.remember(self._stamps, choice)

    def content(self, digest: str) -> Content | None:
        """A content that was pushed before; None if it cannot be read."""
        with suppress(OSError, ValueError, IndexError):
            text = (self._place / f"{digest}.{self.listings[digest]}").read_bytes()
            return content.parse(text) if hashlib.sha256(text).hexdigest() == digest else None
        return None

    def now(self, entries: Mapping[str, Entry]) -> Content:
        """The current content of these entries. Reads only the files that have changed and were not read by the search.

        Raises DeployError for a file that cannot be read.
        """
        began, stamps = time.time(), self._stamps
        changed = {path: entry for path, entry in entries.items() if stamps.get(path) != entry.stamp}
        files = {path: entry.size for path, entry in changed.items() if entry.isreg()}
        digests = {path: left_out.DIGESTS.get((path, entries[path].stamp), "") for path in files}
        for path in [path for path in files if not digests[path]]:
            digests[path] = left_out.read(self._folder, path, {}).digest
        # If only a few files changed, it is faster to read them again next time than to write all records.
        self._is_new = sum(files.values()) > _MOST_REREAD_BYTES or len(files) > _MOST_REREAD_FILES or not self._stamps
        self._began = began
        for path in self._records.keys() - entries.keys():
            del self._records[path]
        for path, entry in changed.items():
            self._records[path] = content.record_of(path, entry, digests.get(path, ""))
        return Content(tuple(self._records.values()))

    def save(self, entries: Mapping[str, Entry], choice: SendChoice) -> None:
        """Write the records, if enough of them differ from those that were loaded."""
        if self._is_new:
            before = self._began - _RECENT_S
            # In the order of the records, which is the order of the content's text: after loading, they need no
            # sorting.
            known = sorted((record, path) for path, record in self._records.items())
            sure = [(record, path) for record, path in known if _is_sure(entries[path], before)]
            rows = [word for record, path in sure for word in (path, entries[path].stamp, record)]
            salt = secrets.token_hex(16)
            with suppress(ValueError):  # if the machine's rules allow no scrypt (FIPS)
                self._write("files", "\0".join([_FORMAT, salt, _judged(salt, choice), *rows]))

    def keep(self, sent: Content) -> None:
        """Remember a content that hosts have now."""
        name = f"{sent.digest}.{sent.listing}"
        with suppress(OSError):
            if sent.digest in self.listings:
                os.utime(self._place / name)
                return
            self._write(name, os.fsdecode(sent.text))
            for old in self._newest()[_CONTENTS:]:
                old.unlink()
            folders = sorted(self._all.iterdir(), key=lambda place: place.stat().st_mtime, reverse=True)
            for old in folders[_FOLDERS:]:
                shutil.rmtree(old) if old.is_dir() else old.unlink()

    def _newest(self) -> Sequence[Path]:
        with suppress(OSError):
            return sorted(self._place.glob("*.*"), key=lambda path: path.stat().st_mtime_ns, reverse=True)
        return ()

    def _write(self, name: str, words: str) -> None:
        remember(self._place, name, os.fsencode(words))


def _is_sure(entry: Entry, before: float) -> bool:
    """Whether the entry's stamp is enough to tell that it has not changed."""
    return entry.changed < before and not entry.isdir()


def _judged(salt: str, choice: SendChoice) -> str:
    """A hash of the secrets and exceptions that the files were searched with; it does not reveal them."""
    words = [salt, sorted(choice.include), sorted(choice.values.items())]
    return hashlib.scrypt(json.dumps(words).encode(), salt=salt.encode(), n=1 << 12, r=8, p=1).hex()
