"""Find what to send from a folder, without credentials; note large files (50 MiB), and refuse too much."""

from __future__ import annotations

import gc
import os
import shlex
import shutil
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from ...core import plain_file
from ...core.errors import DeployError, UsageError
from ...core.text import amount, listed, parents
from ...job.load import refuse_no_folder
from ...job.option_words import include_of
from ...job.values import Data
from ...run.files.folders import cache_folder
from ..background import BackgroundTask
from . import content, left_out, selection
from .content import Entry
from .credentials import IN_AN_ADDRESS, NO_CHOICE, SendChoice, credential_path
from .folder_memory import FolderMemory
from .folder_walk import is_usual
from .left_out import LeftOut

_LARGE = 50 << 20  # bytes; files of code are never that large
# What git has in place of a large file until git-lfs fetches it: three lines, below 1024 bytes by the specification.
_POINTER, _MOST_POINTER_BYTES, _LFS, _MOST_RULES_BYTES = (
    b"version https://git-lfs.github.com/spec/v1\n",
    1024,
    b"filter=lfs",
    1 << 20,
)


@dataclass(frozen=True)
class Look:
    """What to send from a folder (names, not content), and what the user should know before it is sent.

    `credentials`: those that stay on this machine; of data, those that are sent with it. `notes`: notes of other kinds.
    `rule`: the file that decided what is sent, if any. `new`: the paths that git does not track; None if that was not
    determined.
    """

    entries: Sequence[Entry]
    credentials: Sequence[LeftOut]
    notes: Sequence[str]
    rule: str = ""
    new: Sequence[str] | None = None


class FolderLook:
    """The look at a push's folder, in a background thread while hosts are called and asked.

    `choice`: which files to send. `cache`: the folder that keeps what is remembered from one push to the next. `data`:
    if given, the folder is this data, and all of it is sent.
    """

    def __init__(
        self, folder: Path, choice: SendChoice = NO_CHOICE, cache: Path | None = None, data: Data | None = None
    ) -> None:
        self.folder, self.choice, self.data = folder, choice, data
        cache = cache or cache_folder()
        self.memory = FolderMemory(cache / "data" if data else cache, folder)
        self._look = BackgroundTask(self._now)

    def result(self) -> Look:
        """What was found. Raises as `look_at`."""
        return self._look.result()

    def _now(self) -> Look:
        self.memory.load(self.choice)
        with _without_garbage_collector():
            return look_at_data(self.folder, self.choice) if self.data else look_at(self.folder, self.choice)


def looks_at_data(data: Sequence[Data], choice: SendChoice) -> tuple[FolderLook, ...]:
    """The looks at a run's data. Raises UsageError for a folder that does not exist."""
    refuse_no_folder(data)
    # `include` names paths of the code folder.
    choice = replace(choice, include=frozenset())
    return tuple(FolderLook(each.source, choice, data=each) for each in data)


def copy_folder(folder: Path, goal: Path, entries: Iterable[Entry]) -> None:
    """Copy the entries that `look_at` found into a new folder. Raises OSError if `goal` cannot be written."""
    goal.mkdir(parents=True)
    for entry in entries:
        path = goal / entry.path
        if entry.isdir():
            path.mkdir()
        elif entry.issym():
            # The copy is at another place: a link that leads out of the folder gets the absolute path of its target.
            away = selection.link_out(folder, entry.path)
            path.symlink_to(os.path.realpath(folder / away) if away else entry.linkname)
        else:
            shutil.copyfile(folder / entry.path, path)
        if not entry.issym():
            path.chmod(entry.mode)


def look_at(folder: Path, choice: SendChoice = NO_CHOICE) -> Look:
    """Find what is sent from the folder, and what the user should know about it.

    selection.py selects the files; of the credentials among them, only those that `choice` includes are sent. Links are
    kept as they are; sockets, pipes and devices are left out. Raises UsageError if there is no such folder or nothing
    in it, DeployError if a file cannot be read or the files are larger than `choice` allows.
    """
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", "choose the folder that holds your script")
    selected = selection.select(folder, choice.include)
    chosen, odd = _entries(folder, selected.paths)
    if sum(entry.size for entry in chosen) > choice.most:  # before everything is read
        _check_size(folder, [entry for entry in chosen if not credential_path(entry.path)], choice.most)
    credentials = left_out.find(folder, _by_path(chosen), choice)
    stay = {file.path for file in credentials}
    chosen = [entry for entry in chosen if not left_out.is_below(entry.path, stay)]
    _check_size(folder, chosen, choice.most)
    # With a .dockerignore, the file itself is always sent, as Docker's own rules do.
    if not any(not entry.isdir() and entry.path != ".dockerignore" for entry in chosen):
        rule = f": look at its {selected.rule}" if selected.rule else ""
        raise UsageError(f"nothing to send in {folder}{rule}", "choose the folder that holds your script: --folder")
    about_files = (*_large(folder, chosen), *_pointers(folder, chosen))
    notes = [*selected.notes, *about_files, *_settings(folder, choice, credentials), *odd]
    return Look(chosen, credentials, notes, selected.rule, selected.new)


def look_at_data(folder: Path, choice: SendChoice = NO_CHOICE) -> Look:
    """Find everything in a folder of data, whatever ignore rules and names say: the user means all of it.

    Raises UsageError if it is empty, or if a secret is read from a file in it; DeployError if it cannot be read.
    """
    entries, odd = _entries(folder, sorted(content.paths_below(folder)))
    if all(entry.isdir() for entry in entries):
        raise UsageError(f"{folder}: this data folder has no files", "choose the folder that has the data")
    credentials = left_out.find(folder, _by_path(entries), choice)
    if secret := next((file for file in credentials if file.never), None):
        raise UsageError(
            f"{folder / secret.path}: this file is in data that would be sent: {secret.why}", "keep it elsewhere"
        )
    return Look(entries, credentials, odd)


def _entries(folder: Path, paths: Iterable[str]) -> tuple[list[Entry], list[str]]:
    """The entries of these paths, and notes about those that a tar file cannot hold."""
    entries, odd = list[Entry](), list[str]()
    top = str(folder)  # converting a Path to text for each entry would cost time
    for path in paths:
        if made := content.read_entry(top, path):
            entries.append(made)
        elif os.path.lexists(folder / path):
            odd.append(f"{path} stays here: it is a pipe, a socket or a device")
    return entries, odd


def refuse_linked(folder: Path, script: str, targets: Iterable[str]) -> None:
    """Raise UsageError if `script` leads through a link out of the folder, unless to one of `targets`.

    `targets`: the paths, beside the folder, at which the ranks find a folder of this machine or of their host.
    """
    link = selection.beyond_link(folder, script) if script else ""
    if link and not any(map(Path(os.path.realpath(folder / script)).is_relative_to, targets)):
        raise UsageError(f"{script}: the ranks would not have it", link)


def refuse_unsent(look: Look, folder: Path, script: str) -> None:
    """Raise UsageError if `script`, or its target if it is a link, is in the folder but would not be sent."""
    above, name = os.path.split(folder / script)  # the path may lead through a link
    for place in (f"{os.path.realpath(above)}/{name}", os.path.realpath(folder / script)):
        path = os.path.relpath(place, folder.resolve())
        if script and path.split("/")[0] != ".." and path not in {entry.path for entry in look.entries}:
            why = next((file.why for file in look.credentials if file.path == path), "")
            first = "remove the credential; or " if why else ""
            why = (
                why or (_usual(folder, path) if look.rule != ".dockerignore" else "") or f"look at {folder / look.rule}"
            )
            raise UsageError(f"{path}: Muster does not send it: {why}", f"{first}{include_of(path)}")


def _usual(folder: Path, path: str) -> str:
    """Why a path is not sent although no rule excludes it; empty if a rule may."""
    if environment := next((place for place in parents(path) if os.path.lexists(folder / place / "pyvenv.cfg")), ""):
        return f"{environment} is a virtual environment, because it has a pyvenv.cfg"
    return "a folder of this name usually holds what programs make again" if is_usual(path) else ""


def requirement_paths(look: Look) -> frozenset[str]:
    """The paths that may list the packages that a project needs.

    These are the files that are sent, and those that stay on this machine only because of an index's password.
    """
    files = {entry.path for entry in look.entries if not entry.isdir()}
    return frozenset(files | {file.path for file in look.credentials if file.why == IN_AN_ADDRESS})


def exposed_credentials(dockerfile: Path, choice: SendChoice = NO_CHOICE) -> list[LeftOut]:
    """The credentials that a build of `dockerfile` could copy into its image: those that no .dockerignore excludes.

    Raises UsageError if a secret is read from one of them.
    """
    folder = dockerfile.resolve().parent
    own = dockerfile.resolve().with_name(f"{dockerfile.name}.dockerignore")
    patterns = selection.lines(own, folder)  # even an empty one replaces the other
    patterns = selection.lines(folder / ".dockerignore", folder) if patterns is None else patterns
    paths = sorted(selection.not_ignored(folder, patterns or ()))
    exposed = left_out.find(folder, _by_path(_entries(folder, paths)[0]), choice)
    for file in exposed:
        if file.never:
            raise UsageError(
                f"{folder / file.path}: the build could copy this file into the image: {file.why}",
                "list it in .dockerignore",
            )
    return exposed


def _settings(folder: Path, choice: SendChoice, credentials: Sequence[LeftOut]) -> list[str]:
    """A note about a .env file that the user did not ask for, unless another note has named it."""
    path = folder / ".env"
    sources = [source.resolve() for source in choice.sources.values()]
    named = any(file.path == ".env" for file in credentials)
    if not path.is_file() or named or ".env" in choice.include or path.resolve() in sources:
        return []
    return [f"{path} stays here; --env-file {shlex.quote(str(path))} gives its variables to the ranks"]


def _large(folder: Path, entries: Sequence[Entry]) -> list[str]:
    """One note about the large files among the entries, or none."""
    large = sorted((entry for entry in entries if entry.size >= _LARGE), key=lambda entry: -entry.size)
    if not large:
        return []
    named = listed(f"{entry.path} ({amount(entry.size)})" for entry in large)
    where = next((name for name in (".dockerignore", ".gitignore") if (folder / name).exists()), ".gitignore")
    return [
        f"sends large files: {named}; for data that the hosts have already: --mount /data:/data, and list it in {where}"
    ]


def _pointers(folder: Path, entries: Sequence[Entry]) -> list[str]:
    """One note about files that git-lfs has not fetched; searched only if the folder uses git-lfs."""
    rules = [folder / entry.path for entry in entries if entry.path.endswith(".gitattributes")]
    small = [entry.path for entry in entries if entry.isreg() and entry.size < _MOST_POINTER_BYTES]
    with suppress(OSError):  # the folder may have changed
        uses = any(_LFS in plain_file.read(path, _MOST_RULES_BYTES) for path in rules)
        lacking = [
            path for path in small if uses and plain_file.read(folder / path, _MOST_RULES_BYTES).startswith(_POINTER)
        ]
        return (
            [f"only the Git LFS pointers of these files are here: {listed(lacking)}: git lfs pull"] if lacking else []
        )
    return []


def _check_size(folder: Path, entries: Sequence[Entry], most: int) -> None:
    total = sum(entry.size for entry in entries)
    if total > most:
        largest = sorted(entries, key=lambda entry: -entry.size)
        named = ", ".join(f"{entry.path} ({amount(entry.size)})" for entry in largest[:3])
        raise DeployError(
            f"{folder} holds {amount(total)}, too much to send as code (at most {amount(most)}); the largest: {named}",
            f"list what is not code in {folder / '.gitignore'}, and send data separately: --data data:/data; or "
            f"send everything: --folder-limit {total // 10**9 + 1}g",
        )


def _by_path(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.path: entry for entry in entries}


@contextmanager
def _without_garbage_collector() -> Iterator[None]:
    """Pause the garbage collector: it would search all entries made so far again and again, and free nothing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
