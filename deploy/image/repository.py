"""Ask git which code a folder holds: its commit, and how the files that are sent differ from it.

A diff shows what a file held before: where that was a credential, the file's diff is left out. Git starts no external
diff, no conversion to text and no monitor of the file system for this.
"""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

from ..run.code import Code
from . import code_layer, credentials, git
from .credentials import NO_CHOICE, Choice

MOST_FILES, MOST_DIFF = 100, 256 << 10
_MOST_NAMES = 1000
_LEAST_SECRET = 8  # letters; a file may contain a shorter value by chance


def look(folder: Path, choice: Choice = NO_CHOICE) -> Code | None:
    """The code in `folder` now; None if git is missing, does not answer, or has no commit."""
    try:
        return _look(folder, choice)
    except (OSError, subprocess.SubprocessError):
        return None


def _look(folder: Path, choice: Choice) -> Code | None:
    commit = git.ask(folder, "rev-parse", "--verify", "--quiet", "HEAD").decode().strip()
    branch = git.ask(folder, "rev-parse", "--abbrev-ref", "HEAD").decode(errors="replace").strip()
    changed = git.names(folder, "diff", "--name-only", "-z", "--relative", "--no-renames", "HEAD", "--", ".")
    new = git.names(folder, "ls-files", "-z", "--others", "--exclude-standard", "--", ".")
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
        diff = git.ask(folder, "diff", *options, "HEAD", "--", path)
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
        return git.ask(folder, "show", "--no-textconv", f"HEAD:./{path}")
    except subprocess.CalledProcessError:
        return b""
