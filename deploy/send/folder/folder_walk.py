"""Go through a folder as git would, by its index and ignore files; skip what programs make again (`.venv` ...).

Files that these rules exclude are not sent.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path

from ...core import plain_file
from ...core.errors import DeployError
from ...core.text import in_seconds, parents
from . import git, git_files, ignore_rules
from .git import Repository, Unread
from .ignore_rules import Rules

# Rules, each with the folder that they apply to, relative to the folder in which the rules start.
Placed = tuple[tuple[str, Rules], ...]
RULES = ".gitignore"
# Programs make these again. They are not sent, unless a .dockerignore decides, or git tracks them.
_USUAL_FOLDERS = frozenset((
    *(".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *(".ipynb_checkpoints", "node_modules", ".tox", ".nox", ".eggs"),
))  # fmt: skip
_OWN_RUNS = "runs"  # at the top of the folder: Muster's run folders
_MOST_S, _OFTEN = 20.0, 2000  # processor seconds for a folder; after how many names the clock is checked
_MOST_REPOSITORIES = 300  # git is started for each


def look(folder: Path) -> Walk:
    """What git tracks and what it would add; without a repository, everything that no .gitignore excludes.

    If a repository around the folder ignores the whole folder, the folder counts as one without a repository. Raises
    DeployError.
    """
    walk = Walk(folder.resolve(), Clock(folder))
    walk.begin("", walk.folder)
    walk.finish()
    return walk


@dataclass(frozen=True)
class _Place:
    """A folder to look into; its `path` ends in a slash.

    The root is the folder in which `rules` start; each set of rules comes with its own folder, relative to the root.
    `below`: the path of this folder relative to the root. `top`: the path of the repository's folder, as sent.
    `tracked`: the paths that git tracks. `holding`: the folders that contain such paths. `is_ignored`: only tracked
    paths count in it.
    """

    path: str
    below: str
    top: str
    rules: Placed
    tracked: frozenset[str]
    holding: frozenset[str]
    is_ignored: bool = False


@dataclass
class Walk:
    """Goes through a folder and finds the files to send, and the files that a rule excludes. It follows no link."""

    folder: Path
    clock: Clock
    paths: list[str] = field(default_factory=list)
    new: list[str] = field(default_factory=list)
    ignored: list[str] = field(default_factory=list)
    hollow: list[str] = field(default_factory=list)
    unread: list[str] = field(default_factory=list)
    is_in_git: bool = False
    _waiting: list[_Place] = field(default_factory=list)
    _most: int = git_files.MOST  # bytes that the indexes of all repositories in it may still have
    _repositories: int = 0

    def begin(self, path: str, folder: Path) -> None:
        """Look into `folder`, which is sent as `path`, with the rules of the repository that contains it."""
        repository = self._repository(folder)
        top = repository.top if repository else folder
        rules, below = self._own_rules(repository, top), ""
        for part in folder.relative_to(top).parts:
            rules += self._rules(f"{top}/{below}", below)
            if _ignores(rules, f"{below}{part}", True):
                repository, top, below, rules = None, folder, "", ()  # so that the folder's own rules apply
                break
            below += f"{part}/"
        tracked = self._tracked(repository, below)
        holding = frozenset(parent for path in tracked for parent in parents(path))
        self.is_in_git |= repository is not None and not path
        self._waiting.append(_Place(f"{path}/" if path else "", below, path, rules, tracked, holding))

    def finish(self) -> None:
        """Look into all folders that wait."""
        while self._waiting:
            place = self._waiting.pop()
            if not place.is_ignored and (own := self._rules(f"{self.folder}/{place.path}", place.below)):
                place = replace(place, rules=place.rules + own)
            for number, (name, is_folder) in enumerate(names(self.folder, place.path, self.clock), 1):
                self._take(place, name, is_folder)
                if number % _OFTEN == 0:
                    self.clock.look()

    def _take(self, place: _Place, name: str, is_folder: bool) -> None:
        """Decide whether one path is sent."""
        path, own = f"{place.path}{name}", f"{place.below}{name}"
        is_tracked = own in place.tracked
        holds = is_folder and own in place.holding
        usual = is_usual(path[len(place.top) + 1 if place.top else 0 :])
        usual |= os.path.lexists(f"{self.folder}/{path}/pyvenv.cfg")  # a virtual environment, whatever its name
        is_ignored = place.is_ignored or (not usual and _ignores(place.rules, own, is_folder))
        if not is_tracked and not holds and (usual or is_ignored):
            if not usual and not _is_of_a_program(place):
                self.ignored.append(path)
            return
        if is_folder and (is_tracked or os.path.lexists(f"{self.folder}/{path}/.git")) and not holds:
            self.paths.append(path)
            self._take_another(path)
        elif is_folder:
            if not holds:
                self.paths.append(path)
            below = replace(place, path=f"{path}/", below=f"{own}/", is_ignored=usual or is_ignored)
            self._waiting.append(below)
        else:
            self.paths.append(path)
            if not is_tracked:
                self.new.append(path)

    def _take_another(self, path: str) -> None:
        """Take a repository inside this one: its own rules apply, whatever surrounds it."""
        if names(self.folder, path, self.clock):
            self.begin(path, self.folder / path)
        else:
            self.hollow.append(path)

    def _repository(self, folder: Path) -> Repository | None:
        try:
            repository = git.find(folder)
        except Unread as why:
            where = folder if folder == self.folder else folder.relative_to(self.folder)
            self.unread.append(f"Muster does not read the git repository of {where}: {why}")
            return None
        # A .git that git does not accept: the repository around it has already been taken.
        return repository if not repository or folder == self.folder or repository.top == folder else None

    def _own_rules(self, repository: Repository | None, top: Path) -> Placed:
        """The user's own rules for all repositories, then those of this repository alone (info/exclude)."""
        if not repository and not os.path.lexists(top / ".git"):
            return ()
        if not repository:
            return self._mine
        own = repository.common / "info/exclude"
        if not own.is_file() or own.is_symlink():
            return self._mine
        return (*self._mine, *_specs(own, repository.common))

    @cached_property
    def _mine(self) -> Placed:
        path = _own_file()
        return _specs(path, path.parent) if path.is_file() else ()

    def _rules(self, folder: str, place: str) -> Placed:
        where = f"{folder}/{RULES}"
        try:
            # As in git: a link, a folder or a pipe of that name is no file of rules.
            is_file = stat.S_ISREG(os.lstat(where).st_mode)
        except OSError:
            return ()
        return _specs(Path(where), Path(folder), place) if is_file else ()

    def _tracked(self, repository: Repository | None, below: str) -> frozenset[str]:
        if not repository:
            return frozenset()
        self._repositories += 1
        if self._repositories > _MOST_REPOSITORIES:
            raise DeployError(
                f"{self.folder} has more than {_MOST_REPOSITORIES} git repositories", "choose one of them: --folder"
            )
        try:
            paths, size = git_files.tracked(repository, self._most)
        except (OSError, ValueError) as fault:
            self.unread.append(f"Muster does not read the git index of {repository.top}: {fault}")
            return frozenset()
        self._most -= size
        return frozenset(path.removesuffix("/") for path in paths if path.startswith(below))


class Clock:
    """A limit on the processor time spent on a folder: its rules could be written to take forever."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._end = folder, time.thread_time() + _MOST_S

    def look(self) -> None:
        """Raise DeployError if the time is used up."""
        if time.thread_time() > self._end:
            raise DeployError(
                f"{self._folder}: reading its names and the rules of its {RULES} takes more than {in_seconds(_MOST_S)}",
                "choose the folder that holds your script: --folder",
            )


def names(top: Path, place: str, clock: Clock) -> list[tuple[str, bool]]:
    """The names in a folder in order, and whether each is a folder. Raises DeployError."""
    clock.look()
    where = f"{top}/{place}"
    try:
        with os.scandir(where) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    except OSError as fault:
        raise DeployError(
            f"cannot read {where}: {fault.strerror}", "make it readable, or list it in .gitignore"
        ) from fault


def _ignores(rules: Sequence[tuple[str, Rules]], path: str, is_folder: bool) -> bool:
    for place, spec in reversed(rules):
        if (number := spec.decides(path[len(place) :], is_folder)) >= 0:
            return not spec.patterns[number].takes_back
    return False


def _is_of_a_program(place: _Place) -> bool:
    """Whether the folder's own rules hide it and themselves: caches do so, and old run folders."""
    own = [each for each in place.rules if place.below and each[0] == place.below]
    return _ignores(own, f"{place.below}{RULES}", False)


def _own_file() -> Path:
    """The user's own ignore file, for all repositories."""
    named = git.own_setting("core.excludesFile")
    default = Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "git/ignore"
    return (Path(named[-1]) if named else default).resolve()


def _specs(path: Path, folder: Path, place: str = "") -> Placed:
    text = read_rules(path, folder, "surrogateescape")  # git reads bytes
    return () if text is None else ((place, ignore_rules.of_git(text, str(path))),)


def read_rules(path: Path, folder: Path, errors: str = "strict") -> str | None:
    """The text of a file of rules; None if there is none. No link may lead out of `folder`. Raises DeployError."""
    try:
        return plain_file.read(path, ignore_rules.MOST_TEXT, folder).decode("utf-8-sig", errors)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as fault:
        why = fault.strerror if isinstance(fault, OSError) else fault
        raise DeployError(f"cannot read {path}: {why}", "remove it, or choose another --folder") from fault


def is_usual(path: str) -> bool:
    """Whether programs make this path again, or it is in one of Muster's run folders."""
    parts = path.split("/")
    return path.endswith(".pyc") or parts[0] == _OWN_RUNS or not _USUAL_FOLDERS.isdisjoint(parts)
