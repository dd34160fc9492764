"""Which files of a folder are sent: what `.dockerignore` leaves, else what git would take, else all but the usual.

Where the folder is in a git repository, git itself says what its .gitignore files, .git/info/exclude and the user's own
excludes mean. Without git, pathspec reads them. Credentials are the matter of code_layer.py.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING

from ..core.errors import DeployError
from ..engine import images
from . import credentials, git

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

# Programs make these again. They stay here unless a .dockerignore says otherwise, or git has them under control.
_USUAL_FOLDERS = frozenset((
    *(".git", ".hg", ".svn", "__pycache__", ".venv", "venv", ".mypy_cache", ".ruff_cache", ".pytest_cache"),
    *(".ipynb_checkpoints", "node_modules", ".tox", ".nox", ".eggs"),
))  # fmt: skip
_OWN_RUNS = "runs"  # at the top of the folder: our run folders
_SHOWN = 5


@dataclass(frozen=True)
class Selection:
    """Paths in a folder, in order. `rule`: the file that decided, if any. `ignored`: names that a .gitignore keeps
    here, without the usual caches. `hollow`: submodules of which git has fetched nothing."""

    paths: tuple[str, ...]
    rule: str = ""
    ignored: tuple[str, ...] = ()
    hollow: tuple[str, ...] = ()

    @property
    def notes(self) -> tuple[str, ...]:
        """What a user may want to know of it."""
        notes = []
        # A credential has options of its own, and a .env a note of its own (code_layer.py).
        hidden = [name for name in self.ignored if credentials.place_of(name)]
        plain = [name for name in self.ignored if name not in hidden]
        files = [name for name in hidden if name != ".env"]
        for names, how in (
            (plain, "--include NAME sends one"),
            (files, "--secret-file NAME=FILE hands one to the ranks"),
        ):
            if names:
                more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
                listed = ", ".join(names[:_SHOWN]) + more
                notes.append(f"not sent, because {self.rule} names it: {listed}; {how}")
        for path in self.hollow:
            notes.append(f"{path} is an empty submodule: git submodule update --init {path}")
        return tuple(notes)


def select(folder: Path, include: Iterable[str] = ()) -> Selection:
    """The files, links and folders to send, relative and sorted; `include`: paths to send whatever a rule says.

    Raises DeployError if a file with rules cannot be read.
    """
    patterns = lines(folder / ".dockerignore")
    if patterns is not None:
        chosen = Selection(tuple(images.not_ignored(folder, patterns)), ".dockerignore")
    else:
        chosen = _by_git(folder) or _by_walk(folder)
    # A dict keeps the order, which is nearly sorted.
    paths = dict.fromkeys((*chosen.paths, *(path for asked in include for path in _all_of(folder, asked))))
    # Who asks for a file of a folder has looked into that folder.
    asked_for = {part for asked in include for part in (asked, *map(str, PurePosixPath(asked).parents))}
    sent = {f"{asked.rstrip('/')}/" for asked in include}
    ignored = tuple(name for name in chosen.ignored if name not in asked_for and not name.startswith(tuple(sent)))
    return Selection(tuple(sorted(_with_parents(paths))), chosen.rule, ignored, chosen.hollow)


def lines(ignore: Path) -> tuple[str, ...] | None:
    """The lines of a .dockerignore; None if there is no such file. Raises DeployError."""
    text = _read(ignore)
    if text is None:
        return None
    stripped = (line.strip() for line in text.splitlines())
    return tuple(line for line in stripped if line and not line.startswith("#"))


def _by_git(folder: Path) -> Selection | None:
    """What git has under control, and what it would add. None without git, without a repository, and in a folder that
    a repository around it ignores as a whole."""
    try:
        if git.ask(folder, "rev-parse", "--is-inside-work-tree").strip() != b"true" or _is_ignored(folder):
            return None
        tracked = git.names(folder, "ls-files", "-z", "--cached")
        new = git.names(folder, "ls-files", "-z", "--others", "--exclude-standard")
        ignored = git.names(
            folder, "ls-files", "-z", "--others", "--ignored", "--exclude-standard", "--directory", "--", "."
        )
    except (OSError, subprocess.SubprocessError):
        return None
    paths, hollow = list[str](), list[str]()
    for path in (*tracked, *(path for path in new if not is_usual(path))):
        # git names another repository inside this one as a single path.
        name = path.rstrip("/")
        if os.path.isdir(folder / name) and not os.path.islink(folder / name):
            inside = _by_git(folder / name) if (folder / name / ".git").exists() else _by_walk(folder / name)
            below = inside.paths if inside else ()
            paths += [name, *(f"{name}/{part}" for part in below)]
            hollow += [name] if not below else [f"{name}/{part}" for part in inside.hollow] if inside else []
        else:
            paths.append(path)
    shown = [path.rstrip("/") for path in ignored if not is_usual(path.rstrip("/"))]
    return Selection(tuple(paths), ".gitignore", tuple(shown), tuple(hollow))


def _is_ignored(folder: Path) -> bool:
    try:
        git.ask(folder, "check-ignore", "--quiet", "--", str(folder.resolve()), literal=False)
    except subprocess.CalledProcessError:
        return False  # no rule names it, or it is the top of its repository
    return True


def _by_walk(folder: Path) -> Selection:
    """All but the usual, and but what the .gitignore files name, read without git."""
    top = next((above for above in (folder.resolve(), *folder.resolve().parents) if (above / ".git").exists()), None)
    root = top or folder.resolve()
    start = folder.resolve().relative_to(root).as_posix().removeprefix(".")
    # By the folder they are in, relative to the root; the deepest comes last and decides.
    rules = [("", spec) for spec in _specs(root / ".git" / "info" / "exclude")]
    parts = start.split("/") if start else []
    for depth in range(len(parts)):
        place = "".join(f"{part}/" for part in parts[:depth])
        rules += [(place, spec) for spec in _specs(root / place / ".gitignore")]
        if _ignores(rules, f"{place}{parts[depth]}/"):
            rules = []  # what is around it ignores it as a whole, so its own rules hold
            break
    paths, ignored = list[str](), list[str]()
    for path, is_ignored in _walk(root, f"{start}/" if start else "", rules):
        (ignored if is_ignored else paths).append(path[len(start) + 1 if start else 0 :])
    return Selection(tuple(paths), ".gitignore" if ignored else "", tuple(sorted(ignored)))


def _walk(root: Path, start: str, above: Sequence[tuple[str, GitIgnoreSpec]]) -> Iterator[tuple[str, bool]]:
    """Each path below, and whether a rule ignores it; never what is in an ignored folder, and no link is followed."""
    folders = [(start, tuple(above))]
    while folders:
        place, rules = folders.pop()
        rules += tuple((place, spec) for spec in _specs(root / place / ".gitignore"))
        try:
            entries = sorted(os.scandir(root / place), key=lambda entry: entry.name)
        except OSError as fault:
            raise DeployError(
                f"cannot read {root / place}: {fault.strerror}", "make it readable, or list it in .gitignore"
            ) from fault
        for entry in entries:
            path, is_folder = f"{place}{entry.name}", entry.is_dir(follow_symlinks=False)
            # The folders around it have been asked already.
            if entry.name in _USUAL_FOLDERS or path.endswith(".pyc") or (place == start and entry.name == _OWN_RUNS):
                continue
            is_ignored = _ignores(rules, path + "/" * is_folder)
            yield path, is_ignored
            if is_folder and not is_ignored:
                folders.append((f"{path}/", rules))


def _ignores(rules: Sequence[tuple[str, GitIgnoreSpec]], path: str) -> bool:
    for place, spec in reversed(rules):
        if (decided := spec.check_file(path[len(place) :]).include) is not None:
            return decided
    return False


def _specs(ignore: Path) -> list[GitIgnoreSpec]:
    text = _read(ignore, errors="surrogateescape")  # git reads bytes
    if text is None:
        return []
    # Imported here: only a folder without git needs it.
    from pathspec import GitIgnoreSpec

    return [GitIgnoreSpec.from_lines(text.splitlines())]


def _read(path: Path, errors: str = "strict") -> str | None:
    try:
        return path.read_text(encoding="utf-8-sig", errors=errors)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, UnicodeDecodeError) as fault:
        raise DeployError(f"cannot read {path}: {fault}") from fault


def is_usual(path: str) -> bool:
    """Whether programs make it again, or it is one of our run folders."""
    parts = path.split("/")
    return path.endswith(".pyc") or parts[0] == _OWN_RUNS or not _USUAL_FOLDERS.isdisjoint(parts)


def _all_of(folder: Path, path: str) -> Iterator[str]:
    """A path, and if it is a folder everything below it."""
    if not os.path.lexists(folder / path):
        return
    yield path
    if os.path.isdir(folder / path) and not os.path.islink(folder / path):
        for place, folders, files in os.walk(folder / path):
            inside = Path(place).relative_to(folder).as_posix()
            yield from (f"{inside}/{name}" for name in (*folders, *files))


def _with_parents(paths: Iterable[str]) -> Iterable[str]:
    """The paths, and the folders that they are in, each once."""
    complete = dict[str, None]()
    for path in paths:
        while path and path not in complete:
            complete[path] = None
            path = path.rpartition("/")[0]
    return complete
