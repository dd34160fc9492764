"""The layers of a folder: one with all of it, and for a large folder one more with what has changed since that.

A push remembers in ~/.cache/muster/folders what the last whole layer of a large folder holds, by size, times and inode,
as rsync compares. While the hosts have that layer, the next push sends only the changed files, as a layer on top of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import secrets
import tarfile
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..run import own_files
from . import code_layer, left_out, path_entry
from .code_layer import CodeLayer
from .credentials import Choice
from .path_entry import Entry, within

# Below this size, a whole layer is sent faster than it takes to explain why there are two.
LARGE = 32 << 20
_FORMAT = 1
_RECENT_S = 2.0  # a file that changed just now can change again without another time


@dataclass(frozen=True)
class Below:
    """A whole layer that a host must have already: its diff id, and its bytes as a tar file."""

    digest: str
    size: int


@dataclass(frozen=True)
class Known:
    """What the last whole layer of a folder holds: by path, the file as it was."""

    below: Below
    files: Mapping[str, Sequence[object]]


@dataclass(frozen=True)
class FolderLayers:
    """The layers on top of a base, bottom up: `below` only where the hosts may have it."""

    below: Below | None
    top: CodeLayer | None

    @property
    def digests(self) -> tuple[str, ...]:
        """Their diff ids."""
        return tuple(layer.digest for layer in (self.below, self.top) if layer)


class Memory:
    """What this machine remembers of one folder, for one kind of layer (with the trainer or without)."""

    def __init__(self, cache: Path, folder: Path, with_trainer: bool) -> None:
        # Another trainer in the layer is another layer.
        kind = code_layer.trainer_digest() if with_trainer else ""
        name = hashlib.sha256(os.fsencode(folder.resolve()) + b"\0" + kind.encode()).hexdigest()[:32]
        self._folder, self._name = cache / "folders", f"{name}.json"

    def load(self, choice: Choice) -> Known | None:
        """What the last whole layer holds; None if there is none, or nobody can read it.

        Files that are as they were then are known to hold no credential, so they are not read again.
        """
        with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
            value = json.loads((self._folder / self._name).read_text())
            if value["format"] == _FORMAT:
                if value["judged"] == _judged(value["salt"], choice):
                    left_out.remember(value["files"], choice)
                return Known(Below(value["layer"], int(value["size"])), value["files"])
        return None

    def save(self, layer: CodeLayer, entries: Iterable[Entry], began: float, choice: Choice) -> None:
        """Remember a whole layer. A failure costs the next push time, and nothing else."""
        files = {
            within(entry): entry.stamp for entry in entries if not entry.isdir() and entry.changed < began - _RECENT_S
        }
        salt = secrets.token_hex(16)
        value = {"format": _FORMAT, "layer": layer.digest, "size": layer.content.size, "salt": salt}
        document = {**value, "judged": _judged(salt, choice), "files": files}
        with suppress(OSError):
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            own_files.write(self._folder, self._name, json.dumps(document).encode())


def pack(folder: Path | None, with_trainer: bool, choice: Choice, cache: Path, whole: bool = False) -> FolderLayers:
    """The layers of `folder`, or of the trainer alone. `whole`: all of it in one layer. Raises as code_layer.pack."""
    if folder is None:
        return FolderLayers(None, code_layer.pack(None, with_trainer, choice, cache))
    memory, began = Memory(cache.parent, folder, with_trainer), time.time()
    known = memory.load(choice)
    entries = code_layer.entries(folder, choice)
    is_large = sum(entry.size for entry in entries) >= LARGE
    if is_large and known and not whole:
        changed, gone = changes(known, entries)
        if not changed and not gone:
            return FolderLayers(known.below, None)
        # What is still here and is no longer sent (a rule names it, or it holds a secret) must not be in a layer below.
        is_hidden = any(os.path.lexists(folder / path) for path in gone)
        if not is_hidden and sum(entry.size for entry in changed) <= known.below.size // 4:
            return FolderLayers(known.below, _top(folder, changed, gone, entries, cache))
    layer = code_layer.pack_entries(folder, entries, with_trainer, cache)
    if is_large:
        memory.save(layer, entries, began, choice)
    return FolderLayers(None, layer)


def changes(known: Known, entries: Sequence[Entry]) -> tuple[list[Entry], list[str]]:
    """The entries that the whole layer does not hold as they are, and the paths in it that are no more. Pure.

    Of a folder that is gone, only the folder itself.
    """
    names = {within(entry): entry for entry in entries}
    changed = [
        entry for name, entry in names.items() if not entry.isdir() and known.files.get(name) != list(entry.stamp)
    ]
    above = {name for path in known.files for name in _parents(path)}
    changed += [entry for name, entry in names.items() if entry.isdir() and name not in above]
    gone = set[str]()
    for path in known.files.keys() - names.keys():
        top = path
        while (parent := top.rpartition("/")[0]) and parent not in names:
            top = parent
        # A folder of that name that became a file hides what was in it.
        if not (parent := top.rpartition("/")[0]) or names[parent].isdir():
            gone.add(top)
    return changed, sorted(gone)


def _top(
    folder: Path, changed: Sequence[Entry], gone: Sequence[str], entries: Sequence[Entry], cache: Path
) -> CodeLayer:
    """The layer with the changes. A layer says that a file is gone by an empty one, `.wh.` before its name."""
    # A folder in a layer replaces the rights of the same folder below it, so all that lead to a change are in it.
    needed = {name for path in (*map(within, changed), *gone) for name in _parents(path)}
    with_folders = [entry for entry in entries if entry.isdir() and within(entry) in needed]
    marks = []
    for path in gone:
        name = PurePosixPath(path)
        mark = path_entry.named(str(name.with_name(f".wh.{name.name}")))
        mark.type, mark.mode, mark.is_mark = tarfile.REGTYPE, 0o644, True
        marks.append(mark)
    unique = {entry.name: entry for entry in (*with_folders, *changed, *marks)}
    return code_layer.pack_entries(folder, sorted(unique.values(), key=lambda entry: entry.name), False, cache)


def _parents(path: str) -> list[str]:
    parents = []
    while path := path.rpartition("/")[0]:
        parents.append(path)
    return parents


def _judged(salt: str, choice: Choice) -> str:
    """A word for the secrets and exceptions that the files were searched with; it does not tell what they are."""
    words = [salt, sorted(choice.include), sorted(choice.values.items())]
    return hashlib.scrypt(json.dumps(words).encode(), salt=salt.encode(), n=1 << 12, r=8, p=1).hex()
