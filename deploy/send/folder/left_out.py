"""Find the credentials in a folder, which stay on this machine. credentials.py lists what counts as a credential."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Hashable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from ...core import plain_file
from ...core.errors import UsageError
from ...core.suggest import near_file
from ...core.text import parents
from ...job.option_words import include_of
from . import credentials
from .content import Entry, unreadable
from .credentials import SendChoice

_SEARCHED = 1 << 20  # bytes searched in each file: credentials are small, or at the beginning
_SMALL_READ = 4096
# For each set of search terms: the stamps of the files in which no credential was found. A deploy looks several times.
_CLEAN: dict[Hashable, dict[str, str]] = {}
# The digests of the files that were read in the search, by path and stamp: so each file is read only once.
DIGESTS: dict[tuple[str, str], str] = {}


class Read(NamedTuple):
    """What a file contains: its SHA-256 digest, and a description of the credential in it, if any."""

    digest: str
    credential: str


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that stays on this machine, and why. `never`: it stays even if the user includes it."""

    path: str
    why: str = ""
    never: bool = False


def describe(left_out: Sequence[LeftOut]) -> str:
    """One line that lists the files that stay on this machine, and the options that send them."""
    words = [f"{file.path} ({file.why})" if file.why else file.path for file in left_out]
    free = next((file.path for file in left_out if not file.never), "")
    how = f"; {include_of(free)} sends it" if free else ""
    settings = any(PurePosixPath(file.path).name == ".env" and not file.never for file in left_out)
    handed = "--env-file gives the ranks the variables of a .env, --secret NAME or NAME=FILE a single value"
    handed = handed if settings else "--secret NAME or NAME=FILE gives the ranks a value"
    return f"not sent: {', '.join(words)}{how}; {handed}"


def remember(files: Mapping[str, str], choice: SendChoice) -> None:
    """Remember that these files (path -> stamp) contain no credential as long as their stamps stay the same."""
    _CLEAN.setdefault(_key(choice), {}).update(files)


def find(folder: Path, entries: Mapping[str, Entry], choice: SendChoice) -> list[LeftOut]:
    """The credentials among these paths, each once. `entries`: by path, in order.

    Raises UsageError for an `include` that matches nothing, DeployError for a file that cannot be read.
    """
    for path in sorted(choice.include):
        if path not in entries:
            meant = near_file(folder, path, "")
            good = meant and not credentials.credential_path(meant)
            hint = include_of(meant) if good else f"give a path relative to {folder.resolve()}"
            raise UsageError(f"--include {path}: there is nothing with that name to send", hint)
    files = [(name, status) for name, path in choice.sources.items() if (status := _status(path))]
    sources = {(status.st_dev, status.st_ino): name for name, status in files}
    left_out = dict[str, LeftOut]()
    clean = _CLEAN.setdefault(_key(choice), {})
    unsure = {path: entry for path, entry in entries.items() if clean.get(path) != entry.stamp}
    for path, entry in entries.items() if sources else unsure.items():
        if left_out and is_below(path, left_out.keys()):
            continue
        if path not in unsure and not _source(folder / path, sources):
            continue
        credential = _judged(folder, path, entry, sources, choice)
        if not credential:
            clean[path] = entry.stamp
        if credential and (credential.never or not is_below(path, choice.include)):
            left_out[credential.path] = credential
    return list(left_out.values())


def _key(choice: SendChoice) -> Hashable:
    return choice.include, tuple(sorted(choice.values.items()))


def _judged(
    folder: Path,
    path: str,
    entry: Entry,
    sources: Mapping[tuple[int, int], str],
    choice: SendChoice,
) -> LeftOut | None:
    """Whether an entry is a credential, and why; None if it is not."""
    if entry.issym():
        return None
    if entry.isreg() and sources and (secret := _source(folder / path, sources)):
        return LeftOut(path, f"it holds the secret {secret}", never=True)
    if (place := credentials.credential_path(path)) and not is_below(path, choice.include):
        if not any(is_below(asked, (place,)) for asked in choice.include):
            return LeftOut(place)
        if not entry.isdir():
            return LeftOut(path)
    if not entry.isreg():
        return None
    content = read(folder, path, choice.values)
    DIGESTS[path, entry.stamp] = content.digest
    return LeftOut(path, content.credential) if content.credential else None


def read(folder: Path, path: str, values: Mapping[str, str]) -> Read:
    """Read a file of the folder. `values`: secrets by name, which count as credentials too. Raises DeployError."""
    try:
        file = plain_file.open_plain(f"{folder}/{path}")
        try:
            start = os.read(file, min(_SEARCHED, os.fstat(file).st_size))
            hashed = hashlib.sha256(start)
            # For a small file, a buffer of a megabyte would cost as much time as reading its content.
            while piece := os.read(file, _SEARCHED if len(start) == _SEARCHED else _SMALL_READ):
                hashed.update(piece)
        finally:
            os.close(file)
    except OSError as fault:
        raise unreadable(folder / path, fault) from fault
    return Read(hashed.hexdigest(), credentials.credential_in(path, start, values))


def _source(path: Path, sources: Mapping[tuple[int, int], str]) -> str:
    """The name of the secret that is read from that file; empty if there is none."""
    status = _status(path)
    return sources.get((status.st_dev, status.st_ino), "") if status else ""


def is_below(path: str, places: Collection[str]) -> bool:
    """Whether the path is one of these places, or is inside one."""
    return bool(places) and (path in places or any(place in places for place in parents(path)))


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None
