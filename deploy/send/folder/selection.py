"""Which files of a folder are sent (by `.dockerignore`, else git, else all but the usual), and which git lacks.

What git would take follows from its index and from the ignore files, which are read here as text. git itself is never
started in the folder, because the folder may be somebody else's (git.py). folder_look.py handles credentials.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ...core.errors import UsageError
from ...core.text import listed
from ...job.option_words import include_of
from . import credentials, folder_walk, ignore_rules
from .content import paths_below
from .folder_walk import Clock, Walk

_SHOWN = 5
_DOCKER = ".dockerignore"


@dataclass(frozen=True)
class Selection:
    """The paths in a folder to send, in order.

    `rule`: the file that decided, if any. `ignored`: names that a .gitignore excludes, without the usual caches.
    `hollow`: submodules that git has not fetched. `unread`: repositories that Muster does not read, and why.
    `new`: the paths that git does not track; None if that was not determined.
    """

    paths: tuple[str, ...]
    rule: str = ""
    ignored: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    new: tuple[str, ...] | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes for the user about this selection."""
        notes = []
        # Credentials have their own options, and folder_look.py has a separate note about a .env file.
        hidden = [name for name in self.ignored if credentials.credential_path(name)]
        plain = [name for name in self.ignored if name not in hidden]
        files = [name for name in hidden if name != ".env"]
        for names, how in (
            (plain, "--include NAME sends one"),
            (files, "--secret-file NAME=FILE gives one to the ranks"),
        ):
            if names:
                notes.append(f"not sent, because {self.rule} excludes it: {listed(names, _SHOWN + 1)}; {how}")
        for path in self.hollow:
            notes.append(f"{path} is an empty submodule: git submodule update --init {shlex.quote(path)}")
        return (*notes, *self.unread)


def select(folder: Path, include: Iterable[str] = ()) -> Selection:
    """The files, links and folders to send, as sorted relative paths.

    `include`: paths to send whatever a rule says. Raises DeployError if a file with rules cannot be read.
    """
    for asked in include:
        _refuse_link(folder, asked)
    patterns = lines(folder / _DOCKER, folder)
    walk = folder_walk.look(folder) if patterns is None else Walk(folder, Clock(folder))
    rule = _DOCKER if patterns is not None else folder_walk.RULES if walk.is_in_git or walk.ignored else ""
    chosen = walk.paths if patterns is None else list(not_ignored(folder, patterns))
    # A dict keeps the order, and the paths are nearly sorted.
    paths = dict.fromkeys((*chosen, *(path for asked in include for path in _all_of(folder, asked))))
    # If the user asks for a file in an ignored folder, they know that folder: it needs no note.
    asked_for = {part for asked in include for part in (asked, *map(str, PurePosixPath(asked).parents))}
    sent = tuple(f"{asked.rstrip('/')}/" for asked in include)
    stay = tuple(name for name in sorted(walk.ignored) if name not in asked_for and not name.startswith(sent))
    new = tuple(walk.new) if patterns is None else None
    whole = tuple(sorted(_with_parents(paths)))
    return Selection(whole, rule, stay, tuple(walk.hollow), tuple(walk.unread), new)


def lines(path: Path, folder: Path) -> tuple[str, ...] | None:
    """The lines of a .dockerignore in that folder; None if there is no such file. Raises DeployError."""
    text = folder_walk.read_rules(path, folder)
    if text is None:
        return None
    stripped = (line.strip() for line in text.splitlines())
    return tuple(line for line in stripped if line and not line.startswith("#"))


def not_ignored(folder: Path, patterns: Sequence[str]) -> Iterator[str]:
    """The paths of the folder that the lines of a .dockerignore do not exclude, read as Docker reads them.

    A rule for a folder applies to everything in it, and the last rule that matches decides. Raises DeployError.
    """
    rules, clock = ignore_rules.of_docker([*patterns, f"!{_DOCKER}"], str(folder / _DOCKER)), Clock(folder)
    waiting = [("", -1)]
    while waiting:
        place, above = waiting.pop()
        for name, is_folder in folder_walk.names(folder, place, clock):
            path = f"{place}{name}"
            last = max(above, rules.decides(path, is_folder))
            is_left = last < 0 or rules.patterns[last].takes_back
            if is_left:
                yield path
            if is_folder and (is_left or ignore_rules.may_match_below(rules, path)):
                waiting.append((f"{path}/", last))


def _refuse_link(folder: Path, asked: str) -> None:
    """Raise UsageError for a path that leads through a link, or out of the folder."""
    top, above = folder.resolve(), PurePosixPath(asked).parent
    if asked.startswith("/") or ".." in PurePosixPath(asked).parts:
        raise UsageError(f"--include {asked}: it is outside {top}", "give a path relative to the folder")
    if os.path.realpath(top / above) != str(top / above):
        real = os.path.realpath(top / asked)
        hint = beyond_link(folder, asked) or include_of(os.path.relpath(real, top))
        raise UsageError(f"--include {asked}: it leads through a link to {real}", hint)


def beyond_link(folder: Path, path: str) -> str:
    """How to bring to the hosts what lies behind a link out of the folder; empty if this path has no such link.

    Muster sends the link itself, but not its target, which may be any file of this user.
    """
    if not (link := link_out(folder, path)):
        return ""
    top, real = folder.resolve(), (folder / link).resolve()
    far = os.readlink(folder / link).startswith("/")  # absolute: hosts may have a disk mounted there
    target = real if real.is_dir() else real.parent  # only folders can be mounted and sent
    above = str(target) if far else os.path.commonpath((top, real.parent))
    if _is_private(above):
        return f"{link} is a link out of the folder: copy its target into the folder"
    if far:  # the text comes from whoever made the link, and a user will type it
        place = shlex.quote(f"{target}:{target}")
        return f"{link} is a link out of the folder: --mount {place} if the hosts have its target, or --data {place}"
    return f"{link} is a link out of the folder: {_with_both(top, above)}"


def outside(top: Path, path: Path) -> str:
    """How to bring to the hosts what lies outside the folder `top`."""
    above = os.path.commonpath((top, path))
    how = "copy it into it" if _is_private(above) else _with_both(top, above)
    return f"{os.path.relpath(path, top)} is outside the folder that Muster sends: {how}"


def _is_private(above: str) -> bool:
    """Whether a folder contains the user's home directory, or is (or is in) a hidden folder, which may hold keys."""
    return Path.home().is_relative_to(above) or "/." in above


def _with_both(top: Path, above: str) -> str:
    inner = shlex.quote(f"cd {shlex.quote(os.path.relpath(top, above))} && ...")
    return f"--folder {shlex.quote(os.path.relpath(above))} bash -c {inner} sends it too"


def link_out(folder: Path, path: str) -> str:
    """The first link on this path that leads out of the folder; empty if none does."""
    for part in (*map(str, reversed(PurePosixPath(path).parents)), path):
        real = Path(os.path.realpath(folder / part))  # Path.resolve raises for a loop, before Python 3.13
        if os.path.islink(folder / part) and not real.is_relative_to(folder.resolve()):
            return part
    return ""


def _all_of(folder: Path, path: str) -> Iterator[str]:
    """A path and, if it is a folder, everything below it."""
    if not os.path.lexists(folder / path):
        return
    yield path
    if os.path.isdir(folder / path) and not os.path.islink(folder / path):
        yield from paths_below(folder, path)


def _with_parents(paths: Iterable[str]) -> Iterable[str]:
    """The paths and the folders that contain them, each once."""
    complete = dict[str, None]()
    for path in paths:
        while path and path not in complete:
            complete[path] = None
            path = path.rpartition("/")[0]
    return complete
