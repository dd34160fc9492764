"""Ask git which code a folder holds: its commit, and how the files that are sent differ from it.

A diff shows what a file held before: where that was a credential, the file's diff is left out. Git starts no external
diff, no conversion to text and no monitor of the file system for this.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..run.code import Code
from . import code_layer, credentials
from .credentials import NO_CHOICE, Choice

MOST_FILES, MOST_DIFF = 100, 256 << 10
_MOST_NAMES = 1000
_PATIENCE_S = 10.0
_QUIET = ("-c", "core.fsmonitor=false", "-c", "core.untrackedCache=false", "-c", "color.ui=false")
_LEAST_SECRET = 8  # letters; a file may contain a shorter value by chance


def look(folder: Path, choice: Choice = NO_CHOICE) -> Code | None:
    """The code in `folder` now; None if git is missing, does not answer, or has no commit."""
    try:
        return _look(folder, choice)
    except (OSError, subprocess.SubprocessError):
        return None


def _look(folder: Path, choice: Choice) -> Code | None:
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    branch = _git(folder, "rev-parse", "--abbrev-ref", "HEAD").decode(errors="replace").strip()
    changed = _names(folder, "diff", "--name-only", "-z", "--relative", "--no-renames", "HEAD", "--", ".")
    new = _names(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", ".")
    if not changed and not new:
        return Code(commit, branch)
    sent = code_layer.sent(folder, choice)
    new = [path for path in new if path in sent]
    diff, left_out, cut = _diffs(folder, [path for path in changed if path in sent], choice)
    names = [tuple(map(_shown, paths[:_MOST_NAMES])) for paths in (changed, new, left_out)]
    return Code(commit, branch, names[0], names[1], names[2], cut, diff)


def _shown(path: str) -> str:
    """A path with a question mark for each byte that is not text."""
    return path.encode(errors="replace").decode()


def _diffs(folder: Path, paths: Sequence[str], choice: Choice) -> tuple[str, list[str], bool]:
    """The diff of these files, the paths whose diff would show a credential, and whether the diff was cut."""
    diffs, left_out, size = list[str](), list[str](), 0
    for number, path in enumerate(paths):
        if number == MOST_FILES:
            return "".join(diffs), left_out, True
        options = ("--no-ext-diff", "--no-textconv", "--no-color", "--relative", "--no-renames", "--unified=3")
        diff = _git(folder, "diff", *options, "HEAD", "--", path)
        if _is_credential(path, b"\n".join(line[1:] for line in diff.split(b"\n")), choice) or _is_credential(
            path, _before(folder, path), choice
        ):
            left_out.append(path)
            continue
        if size + len(diff) > MOST_DIFF:
            return "".join(diffs), left_out, True
        size += len(diff)
        diffs.append(diff.decode(errors="surrogateescape"))
    return "".join(diffs), left_out, False


def _is_credential(path: str, content: bytes, choice: Choice) -> bool:
    secrets = (value.encode() for value in choice.values.values() if len(value) >= _LEAST_SECRET)
    return bool(credentials.kind_of(path, content)) or any(secret in content for secret in secrets)


def _before(folder: Path, path: str) -> bytes:
    """The content of a file in the commit; nothing if the file is new."""
    try:
        return _git(folder, "show", "--no-textconv", f"HEAD:./{path}")
    except subprocess.CalledProcessError:
        return b""


def _names(folder: Path, *words: str) -> list[str]:
    return [os.fsdecode(name) for name in _git(folder, *words).split(b"\0") if name]


def _git(folder: Path, *words: str) -> bytes:
    """The output of git. Raises CalledProcessError if git refuses: no repository, no commit, another user's folder."""
    # Inside a git hook, variables name another repository.
    own = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    environment = {**own, "GIT_OPTIONAL_LOCKS": "0", "GIT_LITERAL_PATHSPECS": "1"}
    command = ["git", "-C", str(folder), *_QUIET, *words]
    return subprocess.run(
        command,
        check=True,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment,
        timeout=_PATIENCE_S,
    ).stdout
