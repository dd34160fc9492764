"""The user's folder as one layer of an image: the same folder gives the same bytes on every machine, at any time.

Only names, contents and the executable bit count; owner, times and the order of a directory do not.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tarfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, cast

from ..core import plain_file
from ..core.errors import DeployError, UsageError
from ..core.text import amount
from ..run.folders import TRAINER
from . import left_out, path_entry, selection
from .credentials import IN_AN_ADDRESS, NO_CHOICE, Choice, place_of
from .left_out import LeftOut
from .model import TRAINER_HOME
from .path_entry import TIME, Entry
from .spool import Spool

_TOP = Path(__file__).resolve().parents[2]
# In a wheel both halves are inside the package `muster`, in a checkout beside it.
_INSTALLED = "." in TRAINER
_PACKAGES = {"muster": _TOP if _INSTALLED else _TOP / "muster", "trainer": _TOP / "trainer"}
_HALVES = {"deploy", "trainer"}
_LARGE = 50 << 20  # bytes; a file of code is never that large
_SHOWN = 3


@dataclass(frozen=True)
class CodeLayer:
    """The layer that goes on top of the base: its diff id, and its bytes on this machine's disk."""

    digest: str
    content: Spool


@dataclass(frozen=True)
class Look:
    """What there is to send of a folder, by name and without content; and what a user should know before it is sent:
    credentials that stay here, and notes of other kinds. `rule`: the file that decided what is sent, if any.
    `new`: the paths that git does not have; None if nobody has looked."""

    entries: Sequence[Entry]
    credentials: Sequence[LeftOut]
    notes: Sequence[str]
    rule: str = ""
    new: Sequence[str] | None = None


def pack(folder: Path | None, with_trainer: bool, choice: Choice, aside: Path) -> CodeLayer:
    """The layer of `folder`, to stand at /workspace; `with_trainer`: of trainer and muster at /muster as well.

    It has what selection.py selects, and no credentials but those of `choice`. Links are kept as they are; sockets,
    pipes and devices are left out. `aside`: a folder for the bytes meanwhile. Raises UsageError when there is no such
    folder or nothing in it, DeployError when a file cannot be read or all are more than `choice` allows.
    """
    return pack_entries(folder, entries(folder, choice) if folder else [], with_trainer, aside)


def pack_entries(folder: Path | None, chosen: Sequence[Entry], with_trainer: bool, aside: Path) -> CodeLayer:
    """The layer of these entries of the folder. Raises as `pack`."""
    content = Spool(aside)
    hashed = _Hashed(content)
    _write(folder, chosen, with_trainer, cast(IO[bytes], hashed))
    return CodeLayer(hashed.digest, content)


def write(folder: Path | None, with_trainer: bool, choice: Choice, to: IO[bytes]) -> None:
    """Write the layer that `pack` makes into a file."""
    _write(folder, entries(folder, choice) if folder else [], with_trainer, to)


def entries(folder: Path, choice: Choice) -> list[Entry]:
    """The entries of the folder to send, by name and without content. Raises as `pack`."""
    return _look(folder, choice)[0]


def _write(folder: Path | None, chosen: Sequence[Entry], with_trainer: bool, to: IO[bytes]) -> None:
    with tarfile.open(fileobj=to, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for entry in [Entry(""), *chosen]:
            _add(tar, path_entry.in_layer(entry), (folder or Path()) / entry.path)
        for name, path in _trainer() if with_trainer else []:
            _add(tar, _part(name, path), path)


def copy(folder: Path, goal: Path, choice: Choice = NO_CHOICE) -> None:
    """Copy what `pack` would send into a new folder. Raises as `pack` does, and OSError if `goal` cannot be written."""
    goal.mkdir(parents=True)
    for entry in entries(folder, choice):
        path = goal / entry.path
        if entry.isdir():
            path.mkdir()
        elif entry.issym():
            path.symlink_to(entry.linkname)
        else:
            shutil.copyfile(folder / entry.path, path)
        if not entry.issym():
            path.chmod(entry.mode)


def look(folder: Path, choice: Choice = NO_CHOICE) -> Look:
    """What `pack` would send, and what the user should know of it. Raises what `pack` would."""
    chosen, credentials, selected, odd = _look(folder, choice)
    notes = [*selected.notes, *_large(folder, chosen), *_settings(folder, choice, credentials), *odd]
    return Look(chosen, credentials, notes, selected.rule, selected.new)


def refuse_unsent(look: Look, folder: Path, script: str) -> None:
    """Raise UsageError if `script` is in the folder, and Muster would not send it."""
    names = {entry.path for entry in look.entries}
    if script and Path(script).as_posix() not in names and (folder / script).resolve().is_relative_to(folder.resolve()):
        if why := next((file.why for file in look.credentials if file.path == Path(script).as_posix()), ""):
            raise UsageError(
                f"{script}: Muster does not send it: {why}", f"remove the credential; or --include {script}"
            )
        raise UsageError(
            f"{script}: Muster does not send it: look at {folder / (look.rule or '.dockerignore')}",
            f"--include {script}",
        )


def sent(folder: Path, choice: Choice = NO_CHOICE) -> frozenset[str]:
    """The paths in `folder` that `pack` sends. Raises what `pack` would for the folder."""
    return frozenset(entry.path for entry in entries(folder, choice) if not entry.isdir())


def needs(look: Look) -> frozenset[str]:
    """The paths that may say which packages a project needs: those that are sent, and those that stay here for the
    password of an index alone. The hosts get what these say in memory."""
    files = {entry.path for entry in look.entries if not entry.isdir()}
    return frozenset(files | {file.path for file in look.credentials if file.why == IN_AN_ADDRESS})


def build_context(dockerfile: Path, choice: Choice = NO_CHOICE) -> list[LeftOut]:
    """The credentials that a build of `dockerfile` could copy into its image: those that no .dockerignore names.

    Raises UsageError if one of them is the file of a secret.
    """
    folder = dockerfile.resolve().parent
    own = dockerfile.resolve().with_name(f"{dockerfile.name}.dockerignore")
    patterns = selection.lines(own, folder) or selection.lines(folder / ".dockerignore", folder) or ()
    paths = sorted(selection.not_ignored(folder, patterns))
    exposed = left_out.find(folder, _kinds(made for path in paths if (made := path_entry.read(folder, path))), choice)
    for file in exposed:
        if file.never:
            raise UsageError(
                f"{folder / file.path}: the build could copy it into the image: {file.why}", "list it in .dockerignore"
            )
    return exposed


def _look(folder: Path, choice: Choice) -> tuple[list[Entry], list[LeftOut], selection.Selection, list[str]]:
    """The entries of the folder to send, by name and without content; the credentials that stay; what was selected;
    and notes about what no layer can hold."""
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", "name the folder that holds your script")
    selected = selection.select(folder, choice.include)
    chosen, odd = list[Entry](), list[str]()
    top = str(folder)  # a Path would be made a text again for each
    for path in selected.paths:
        if made := path_entry.read(top, path):
            chosen.append(made)
        elif os.path.lexists(folder / path):
            odd.append(f"{path} stays here: it is a pipe, a socket or a device")
    if sum(entry.size for entry in chosen) > choice.most:  # before all of it is read
        _check_size(folder, [entry for entry in chosen if not place_of(entry.path)], choice.most)
    credentials = left_out.find(folder, _kinds(chosen), choice)
    stay = {file.path for file in credentials}
    chosen = [entry for entry in chosen if not left_out.is_below(entry.path, stay)]
    _check_size(folder, chosen, choice.most)
    # Docker's own rules always send .dockerignore itself.
    if not any(not entry.isdir() and entry.path != ".dockerignore" for entry in chosen):
        rule = f": look at its {selected.rule}" if selected.rule else ""
        raise UsageError(f"nothing to send in {folder}{rule}", "name the folder that holds your script: --folder")
    return chosen, credentials, selected, odd


def _settings(folder: Path, choice: Choice, credentials: Sequence[LeftOut]) -> list[str]:
    """A note about a file of variables that was neither asked for nor named before."""
    path = folder / ".env"
    sources = [source.resolve() for source in choice.sources.values()]
    named = any(file.path == ".env" for file in credentials)
    if not path.is_file() or named or ".env" in choice.include or path.resolve() in sources:
        return []
    return [f"{path} stays here; --env-file {path} gives its variables to the ranks"]


def _large(folder: Path, entries: Sequence[Entry]) -> list[str]:
    """One note about the large files among the entries."""
    large = sorted((entry for entry in entries if entry.size >= _LARGE), key=lambda entry: -entry.size)
    if not large:
        return []
    named = ", ".join(f"{entry.path} ({amount(entry.size)})" for entry in large[:_SHOWN])
    more = f" and {len(large) - _SHOWN} more" if len(large) > _SHOWN else ""
    where = next((name for name in (".dockerignore", ".gitignore") if (folder / name).exists()), ".gitignore")
    return [
        f"sends large files: {named}{more}; what the hosts have already: --mount /data:/data, and list it in {where}"
    ]


def _trainer() -> Iterator[tuple[str, Path]]:
    """The entries of /muster by name: the trainer package beside this one and what it needs.

    A checkout and an installed Muster give the same bytes.
    """
    yield "", _TOP
    for name, folder in _PACKAGES.items():
        yield name, folder
        for path in sorted(folder.rglob("*")):
            inside = path.relative_to(folder)
            half = name == "muster" and _INSTALLED and inside.parts[0] in _HALVES
            if not half and "__pycache__" not in inside.parts:
                yield f"{name}/{inside.as_posix()}", path


def _part(name: str, path: Path) -> tarfile.TarInfo:
    """An entry of these packages in the layer, without content: root owns it, and everybody may read it."""
    entry = tarfile.TarInfo((PurePosixPath(TRAINER_HOME[1:]) / name).as_posix())
    entry.mtime, entry.mode, entry.type = TIME, 0o644, tarfile.REGTYPE
    if path.is_dir():
        entry.mode, entry.type = 0o755, tarfile.DIRTYPE
    return entry


def _check_size(folder: Path, entries: Sequence[Entry], most: int) -> None:
    total = sum(entry.size for entry in entries)
    if total > most:
        largest = sorted(entries, key=lambda entry: -entry.size)
        named = ", ".join(f"{entry.path} ({amount(entry.size)})" for entry in largest[:3])
        raise DeployError(
            f"{folder} holds {amount(total)}, too much to send as code (at most {amount(most)}); the largest: {named}",
            f"list what is not code in {folder / '.gitignore'}, and mount the data: --mount /data:/data; "
            f"or send it all: --folder-limit {total // 10**9 + 1}g",
        )


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        tar.addfile(entry)
        return
    try:
        with os.fdopen(plain_file.open_plain(path), "rb") as file:
            entry.size = os.fstat(file.fileno()).st_size  # somebody may have written to it since we looked
            tar.addfile(entry, file)
    except OSError as fault:
        raise left_out.unreadable(path, fault) from fault


class _Hashed:
    """A file for tarfile that hashes what goes through."""

    def __init__(self, to: Spool | None) -> None:
        self._to, self._hash, self._size = to, hashlib.sha256(), 0

    @property
    def digest(self) -> str:
        return f"sha256:{self._hash.hexdigest()}"

    def write(self, data: bytes) -> int:
        self._hash.update(data)
        self._size += len(data)
        return self._to.write(data) if self._to else len(data)

    def tell(self) -> int:
        return self._size


def _kinds(entries: Iterable[Entry]) -> dict[str, Entry]:
    return {entry.path: entry for entry in entries}
