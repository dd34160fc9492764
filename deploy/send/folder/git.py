"""Read a git repository as plain files: it may be somebody else's, and its settings can name programs to run.

git would run those programs. So Muster never starts git in such a folder, nor with the repository's settings. It asks
git only three things: this user's own settings (`own_setting`), one setting of a repository, which git gets as text
that it does not act on, and the content of objects (git_files.py).
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from ...core import plain_file
from ...job.allowed import own_users

_MOST_REF, _MOST_REFS, _MOST_SETTINGS = 4096, 16 << 20, 1 << 20
_MOST_WITHIN = 20  # how deep submodules may be nested
_PATIENCE_S = 10.0
_COMMIT = re.compile(r"[0-9a-f]{40}(?:[0-9a-f]{24})?")
_REF = re.compile(r"refs(?:/(?!\.)[^\x00-\x20\x7f~^:?*\[\\/]+)+")
# The variables that tell git where the user's own settings are. Other git variables may select another repository.
_OWN = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")


class Unread(Exception):
    """Raised for a repository that Muster does not read; the text says why."""


@dataclass(frozen=True)
class Repository:
    """A git repository.

    `top`: the folder that contains `.git`. `folder`: where git keeps the data of this one work tree. `common`: where
    git keeps the data that all work trees share.
    """

    top: Path
    folder: Path
    common: Path

    @cached_property
    def hash_bytes(self) -> int:
        """The length in bytes of its objects' names."""
        return 32 if self._setting("extensions.objectformat") == ["sha256"] else 20

    @cached_property
    def minds_modes(self) -> bool:
        """Whether a file's executable bit counts."""
        return self._setting("core.filemode", "--type=bool") != ["false"]

    def _setting(self, name: str, *kind: str) -> list[str]:
        """The repository's setting of that name. git reads it from its input as text, and acts on none."""
        try:
            text = plain_file.read(self.common / "config", _MOST_SETTINGS)
        except OSError:
            return []
        return _config("--file=-", "--no-includes", *kind, "--get", name, text=text)


def find(folder: Path, deep: int = 0) -> Repository | None:
    """The repository that contains the folder; None if there is none. Raises Unread."""
    start = folder.resolve()
    for top in (start, *start.parents):
        if os.path.lexists(top / ".git"):
            if repository := _of(top, deep):
                return repository
        elif top.stat().st_dev != start.stat().st_dev:
            return None
    return None


def head(repository: Repository) -> tuple[str, str] | None:
    """The commit and the branch (HEAD if detached); None before the first commit. Raises OSError."""
    text, branch = _line(repository.folder / "HEAD", repository), "HEAD"
    for _ in range(5):
        if not text.startswith("ref: "):
            return (text, branch) if _COMMIT.fullmatch(text) else None
        name = text.removeprefix("ref: ").strip()
        if not _REF.fullmatch(name) or ".." in name:
            return None
        branch = name.removeprefix("refs/heads/")
        try:
            text = _line(repository.common / name, repository)
        except OSError:
            text = _packed(repository, name)
    return None


def own_setting(name: str) -> list[str]:
    """This user's own git setting of that name; empty without git. Settings in folders do not count."""
    return _config("--type=path", "--get-all", name)


def _config(*words: str, text: bytes = b"") -> list[str]:
    variables = {key: value for key, value in os.environ.items() if not key.startswith("GIT_") or key in _OWN}
    try:
        done = subprocess.run(
            ["git", "config", "-z", *words],
            env={**variables, "GIT_DIR": os.devnull},
            cwd="/",
            input=text,
            capture_output=True,
            timeout=_PATIENCE_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError):
        return []
    return [os.fsdecode(value) for value in done.stdout.split(b"\0") if value]


def _of(top: Path, deep: int) -> Repository | None:
    """The repository in a folder that has a `.git`; None if that is no repository. Raises Unread."""
    entry = top / ".git"
    try:
        real = plain_file.inside(entry, top)
        folder, common = _parts(top, entry, real, deep)
        places = {path: os.lstat(path) for path in (entry, real, top, folder, common)}
        is_one = all((common / name).is_dir() and not (common / name).is_symlink() for name in ("objects", "refs"))
    except OSError as fault:
        raise Unread(f"{fault.strerror}") from fault
    if not is_one or not os.path.lexists(folder / "HEAD"):
        return None
    strange = next((path for path, status in places.items() if status.st_uid not in own_users()), None)
    if strange and not {str(top), "*"} & set(own_setting("safe.directory")):
        how = f"git config --global --add safe.directory {shlex.quote(str(top))}"
        raise Unread(f"another user owns it; if you trust it: {how}")
    return Repository(top, folder, common)


def _parts(top: Path, entry: Path, real: Path, deep: int) -> tuple[Path, Path]:
    """Where git keeps the data of this work tree, and the data of all work trees. Raises OSError, Unread."""
    if real.is_dir():
        if os.path.lexists(real / "commondir"):
            raise Unread("its `commondir` points to another repository")
        return real, real
    text = _text(real)
    if not text.startswith("gitdir: "):
        raise Unread("its .git is not a repository")
    folder = (top / text.removeprefix("gitdir: ")).resolve(strict=True)
    if os.path.lexists(folder / "commondir"):
        # A work tree that git made: the folder that its .git file points to points back to that file.
        common = (folder / _text(folder / "commondir")).resolve(strict=True)
        if folder.parent == common / "worktrees" and Path(_text(folder / "gitdir")).resolve() == entry:
            return folder, common
    else:
        around = find(top.parent, deep + 1) if deep < _MOST_WITHIN else None
        if around and any(folder.is_relative_to(place / "modules") for place in (around.folder, around.common)):
            return folder, folder
    raise Unread("its .git points to a folder that does not belong to it")


def _line(path: Path, repository: Repository) -> str:
    within = repository.folder if path.is_relative_to(repository.folder) else repository.common
    return plain_file.read(path, _MOST_REF, within).decode(errors="replace").strip()


def _text(path: Path) -> str:
    return os.fsdecode(plain_file.read(path, _MOST_REF)).strip()


def _packed(repository: Repository, name: str) -> str:
    try:
        rows = plain_file.read(repository.common / "packed-refs", _MOST_REFS).decode(errors="replace").splitlines()
    except OSError:
        return ""
    return next((row.partition(" ")[0] for row in rows if row.endswith(f" {name}")), "")
