"""Which code a folder holds: its Git commit, and how the files that are sent differ from that commit.

A diff also shows the old content of a file: if that was a credential, the file's diff is left out. git.py documents how
the repository is read. A repository inside this one (a submodule) is compared by its commit.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

from ...core import plain_file
from ...run.files.code import Code
from . import credentials, folder_look, folder_walk, git, git_files
from .credentials import NO_CHOICE, SendChoice
from .folder_look import Look
from .git import Repository, Unread
from .git_files import MOST_BLOB, Objects

MOST_FILES, MOST_DIFF = 100, 256 << 10
_MOST_NAMES = 1000


def look(folder: Path, choice: SendChoice = NO_CHOICE, known: Look | None = None) -> Code | None:
    """The code in `folder` now; None without git, or if its repository has no commit or cannot be read.

    `known`: the files to send, if the caller has already looked for them.
    """
    try:
        repository = git.find(folder)
        head = git.head(repository) if repository else None
        return _look(folder, choice, repository, *head, known) if repository and head else None
    except (OSError, ValueError, subprocess.SubprocessError, Unread):
        return None


def _look(
    folder: Path, choice: SendChoice, repository: Repository, commit: str, branch: str, known: Look | None
) -> Code:
    below = folder.resolve().relative_to(repository.top).as_posix().removeprefix(".")
    start = f"{below}/" if below else ""
    with git_files.borrowed(repository) as objects:
        was, within = objects.changes(commit, start)
        differing = sorted([*was, *(path for path, at in within.items() if _commit_within(folder / path, at) != at)])
        new = known.new if known and known.new is not None else folder_walk.look(folder).new
        if not differing and not new:
            return Code(commit, branch)
        entries = known.entries if known else folder_look.look_at(folder, choice).entries
        sent = {entry.path for entry in entries if not entry.isdir()}
        before = {path: was[path] for path in differing if path in sent and path in was}
        names, left_out, cut = _shown_in_diff(folder, objects, before, choice)
        diff, is_long = _bounded(objects.diff(commit, start, names) if names else [])
    lists = (differing, [path for path in new if path in sent], left_out)
    shown = [tuple(map(_shown, paths[:_MOST_NAMES])) for paths in lists]
    return Code(commit, branch, shown[0], shown[1], shown[2], cut or is_long, diff)


def _commit_within(folder: Path, recorded: str) -> str:
    """The commit of a repository inside this one; empty if its files differ from it, "none" if there is no repository.

    A submodule that has not been fetched counts as unchanged, with its recorded commit.
    """
    if not recorded or not os.path.lexists(folder):
        return "none"
    try:
        within = git.find(folder)
        if within is None or within.top != folder.resolve():
            return recorded
        commit, _ = git.head(within) or ("", "")
        with git_files.borrowed(within) as objects:
            return "" if objects.changes(commit)[0] else commit
    except (OSError, ValueError, subprocess.SubprocessError, Unread):
        return recorded


def _shown(path: str) -> str:
    """The path, with a question mark for each byte that is not valid text."""
    return path.encode(errors="replace").decode()


def _shown_in_diff(
    folder: Path, objects: Objects, before: Mapping[str, str], choice: SendChoice
) -> tuple[list[str], list[str], bool]:
    """The paths whose diff is shown, those whose diff would show a credential, and whether others are left out."""
    paths = list(before)[:MOST_FILES]
    old = objects.contents([before[path] for path in paths if before[path]])
    names, left_out = list[str](), list[str]()
    for path in paths:
        texts = [_content(folder / path), *([old.get(before[path])] if before[path] else [])]
        if None in texts:
            continue  # too large, or there is no such file any more
        kinds = [credentials.credential_in(path, text, choice.values) for text in texts if text is not None]
        (left_out if any(kinds) else names).append(path)
    return names, left_out, len(names) + len(left_out) < len(before)


def _bounded(parts: Sequence[bytes]) -> tuple[str, bool]:
    """The first of these diffs that fit within MOST_DIFF bytes, and whether others are left out."""
    diffs, size = list[bytes](), 0
    for part in parts:
        size += len(part)
        if size > MOST_DIFF:
            break
        diffs.append(part)
    return b"".join(diffs).decode(errors="surrogateescape"), len(diffs) < len(parts)


def _content(path: Path) -> bytes | None:
    """The current content of a file, or the target of a link; None if it is larger than what is compared."""
    try:
        if path.is_symlink():
            return os.fsencode(os.readlink(path))
        return plain_file.read(path, MOST_BLOB)
    except OSError:
        return None
