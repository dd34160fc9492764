"""Which code a folder holds: its commit, and how the files that are sent differ from it.

A diff shows what a file held before: where that was a credential, the file's diff is left out. git.py says how the
repository is read; a repository within this one (a submodule) counts by its commit and its index.
"""

from __future__ import annotations

import errno
import os
import stat
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path

from ...core import plain_file
from ...run.code import Code
from . import credentials, folder_look, folder_walk, git, git_files
from .credentials import NO_CHOICE, Choice
from .folder_look import Look
from .git import Repository, Unread
from .git_files import MOST_BLOB, Both, Index, Objects, Tracked

MOST_FILES, MOST_DIFF = 100, 256 << 10
_MOST_NAMES = 1000
_LEAST_SECRET = 8  # letters; a file may contain a shorter value by chance
_MOST_HASHED = 64 << 20
_FILE, _PROGRAM, _LINK = 0o100644, 0o100755, 0o120000


def look(folder: Path, choice: Choice = NO_CHOICE, known: Look | None = None) -> Code | None:
    """The code in `folder` now; None without git, and if its repository has no commit or cannot be read.

    `known`: what there is to send, if somebody has looked.
    """
    try:
        repository = git.find(folder)
        head = git.head(repository) if repository else None
        return _look(folder, choice, repository, *head, known) if repository and head else None
    except (OSError, ValueError, subprocess.SubprocessError, Unread):
        return None


def _look(folder: Path, choice: Choice, repository: Repository, commit: str, branch: str, known: Look | None) -> Code:
    below = folder.resolve().relative_to(repository.top).as_posix().removeprefix(".")
    start = f"{below}/" if below else ""
    index = git_files.read_index(repository.folder / "index", repository.hash_bytes)
    with git_files.borrowed(repository) as objects:
        tree = {path[len(start) :]: was for path, was in objects.tree(commit, start).items()}
        differing = sorted(_changed(folder, start, repository, index, tree))
        new = known.new if known and known.new is not None else folder_walk.look(folder).new
        if not differing and not new:
            return Code(commit, branch)
        entries = known.entries if known else folder_look.entries_of(folder, choice)
        sent = {entry.path for entry in entries if not entry.isdir()}
        before = {path: tree.get(path) for path in differing if path in sent}
        diff, left_out, cut = _diffs(folder, objects, before, choice)
    lists = (differing, [path for path in new if path in sent], left_out)
    names = [tuple(map(_shown, paths[:_MOST_NAMES])) for paths in lists]
    return Code(commit, branch, names[0], names[1], names[2], cut, diff)


def _changed(
    folder: Path, start: str, repository: Repository, index: Index, tree: Mapping[str, tuple[int, str]]
) -> Iterator[str]:
    """The paths, seen from the folder, that are not as in the commit."""
    known = {path[len(start) :]: path for path in index.places if path.startswith(start)}
    for path in {**tree, **known}:
        entry = index.tracked(known[path]) if path in known else None
        was = tree.get(path)
        if entry is None or was is None or _now(folder, path, entry, repository, index.written) != was:
            yield path


def _now(folder: Path, name: str, entry: Tracked, repository: Repository, written: int) -> tuple[int, str] | None:
    """The mode and the object of a path as it is now; None if it is gone."""
    known, path = (entry.mode, entry.object), f"{folder}/{name}"
    if entry.is_trusted:
        return known
    try:
        status = os.lstat(path)
    except OSError:
        return None
    if entry.is_repository:
        return (entry.mode, _commit_within(Path(path), entry.object))
    mode = _LINK if stat.S_ISLNK(status.st_mode) else _PROGRAM if status.st_mode & 0o100 else _FILE
    if mode != _LINK and entry.mode != _LINK and not repository.minds_modes:
        mode = entry.mode
    if not (stat.S_ISREG(status.st_mode) or mode == _LINK):
        return None
    as_before = status.st_size & 0xFFFFFFFF == entry.size and status.st_mtime_ns == entry.modified < written
    if as_before and mode == entry.mode:
        return known
    try:
        return mode, _object(Path(path), folder, entry, mode, repository.hash_bytes)
    except OSError:  # it is very large, or a link leads out of the folder
        return None


def _object(path: Path, folder: Path, entry: Tracked, mode: int, hash_bytes: int) -> str:
    """The object of a file's content; as the index has it, if git would only have changed the ends of its lines."""
    if mode == _LINK:
        return _name(os.fsencode(os.readlink(path)), hash_bytes)
    with os.fdopen(plain_file.open_plain(plain_file.inside(path, folder)), "rb") as file:
        size = os.fstat(file.fileno()).st_size
        if size > _MOST_HASHED:
            raise OSError(errno.EFBIG, "it is too large to compare")
        if size > MOST_BLOB:
            return git_files.name_of(iter(partial(file.read, MOST_BLOB), b""), size, hash_bytes)
        content = file.read(MOST_BLOB)
    names = (_name(text, hash_bytes) for text in (content, content.replace(b"\r\n", b"\n")))
    first = next(names)
    return first if first == entry.object or b"\r\n" not in content or next(names) != entry.object else entry.object


def _name(content: bytes, hash_bytes: int) -> str:
    return git_files.name_of([content], len(content), hash_bytes)


def _commit_within(folder: Path, recorded: str) -> str:
    """The commit of a repository within this one; nothing if its files are not as in its own index.

    One that is not fetched is as it was recorded.
    """
    try:
        within = git.find(folder)
        if within is None or within.top != folder.resolve():
            return recorded
        index = git_files.read_index(within.folder / "index", within.hash_bytes)
        entries = ((path, index.tracked(path)) for path in index.places)
        if any(
            _now(folder, path, entry, within, index.written) != (entry.mode, entry.object)
            for path, entry in entries
            if not entry.is_repository
        ):
            return ""
        return (git.head(within) or ("",))[0]
    except (OSError, ValueError, Unread):
        return recorded


def _shown(path: str) -> str:
    """A path with a question mark for each byte that is not text."""
    return path.encode(errors="replace").decode()


def _diffs(
    folder: Path, objects: Objects, before: Mapping[str, tuple[int, str] | None], choice: Choice
) -> tuple[str, list[str], bool]:
    """The diff of these files, the paths whose diff would show a credential, and whether the diff was cut."""
    paths = list(before)[:MOST_FILES]
    old = objects.contents([was[1] for path in paths if (was := before[path])])
    both, left_out, cut = dict[str, Both](), list[str](), len(before) > len(paths)
    for path in paths:
        was = before[path]
        now, mode = _content(folder / path)
        then = old.get(was[1]) if was else None
        if now is None or (was and then is None) or (was and (was[0] ^ mode) & ~0o777):
            cut = True  # too large, or no file as before
        elif any(_is_credential(path, text, choice) for text in (then, now) if text is not None):
            left_out.append(path)
        elif not was or (then, was[0]) != (now, mode):
            both[path] = (then, now, was[0] if was else 0, mode)
    diffs, size = list[bytes](), 0
    for part in objects.diff(both).values() if both else ():
        size += len(part)
        if size > MOST_DIFF:
            return b"".join(diffs).decode(errors="surrogateescape"), left_out, True
        diffs.append(part)
    return b"".join(diffs).decode(errors="surrogateescape"), left_out, cut


def _content(path: Path) -> tuple[bytes | None, int]:
    """What a file or a link holds now, and its mode; None for more than is compared."""
    try:
        status = os.lstat(path)
        if stat.S_ISLNK(status.st_mode):
            return os.fsencode(os.readlink(path)), _LINK
        return plain_file.read(path, MOST_BLOB), _PROGRAM if status.st_mode & 0o100 else _FILE
    except OSError:
        return None, 0


def _is_credential(path: str, content: bytes, choice: Choice) -> bool:
    secrets = (value.encode() for value in choice.values.values() if len(value) >= _LEAST_SECRET)
    return bool(credentials.kind_of(path, content)) or any(secret in content for secret in secrets)
