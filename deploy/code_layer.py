"""The user's folder as one layer of an image: the same folder gives the same bytes on every machine, at any time.

Only names, contents and the executable bit count; owner, times and the order of a directory do not.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable
from pathlib import Path, PurePosixPath

from deploy import engine_images
from deploy.errors import DeployError, UsageError
from deploy.facts import amount
from deploy.image import TRAINER_HOME, WORKSPACE

MOST = 256 << 20  # bytes; more than that is data, which belongs into a mount
# When there is no .dockerignore: what is made from the rest, and nobody wants on another machine.
_USUAL = ("**/.git", "**/__pycache__", "**/*.pyc", "**/.venv", "**/venv", "**/.mypy_cache", "**/.ruff_cache", "runs")
_OWNER = 1000  # the user of Muster's own image
_TIME = 315532800  # 1980: zip files know no earlier year
_TRAINER = Path(__file__).resolve().parents[1] / "trainer"


def pack(folder: Path | None, with_trainer: bool = False) -> bytes:
    """The tar file of `folder`, to stand at /workspace; `with_trainer`: of the trainer package at /muster as well.

    What its `.dockerignore` names is left out; without such a file, .git, virtual environments, caches and runs are.
    Links are kept as they are; sockets, pipes and devices are left out. Raises UsageError when there is no such folder
    or nothing in it, DeployError when a file cannot be read or all are more than 256 MiB.
    """
    entries = _entries(folder) if folder else []
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for entry in [_folder(), *entries]:
            _add(tar, entry, (folder or Path()) / _within(entry))
        for path in _trainer() if with_trainer else []:
            _add(tar, _part(path), path)
    return written.getvalue()


def check(folder: Path, script: str = "") -> None:
    """Raise what `pack` would, short of reading the files; also UsageError where `script` would not go along."""
    names = {_within(entry) for entry in _entries(folder)}
    if script and Path(script).as_posix() not in names and (folder / script).resolve().is_relative_to(folder.resolve()):
        raise UsageError(f"{script}: left out of what is sent", f"look at {folder / '.dockerignore'}")


def _entries(folder: Path) -> list[tarfile.TarInfo]:
    """What of the folder goes along, without its content, by name."""
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", "name the folder that holds your script")
    paths = sorted(set(engine_images.not_ignored(folder, _patterns(folder))))
    entries = [entry for path in paths if (entry := _entry(folder, path))]
    # Docker's own rules let .dockerignore itself through, always.
    if not any(not entry.isdir() and _within(entry) != ".dockerignore" for entry in entries):
        raise UsageError(f"nothing to send in {folder}", "look at its .dockerignore")
    _check_size(folder, entries)
    return entries


def _trainer() -> list[Path]:
    """The folder above it, and the trainer package beside this one, in the checkout or where Muster is installed."""
    found = (path for path in _TRAINER.rglob("*") if path.name != "__pycache__" and path.suffix != ".pyc")
    return [_TRAINER.parent, _TRAINER, *sorted(found)]


def _part(path: Path) -> tarfile.TarInfo:
    """A part of the trainer package as the layer has it, without its content: root's, for everybody to read."""
    entry = tarfile.TarInfo((PurePosixPath(TRAINER_HOME[1:]) / path.relative_to(_TRAINER.parent)).as_posix())
    entry.mtime, entry.mode, entry.type = _TIME, 0o644, tarfile.REGTYPE
    if path.is_dir():
        entry.mode, entry.type = 0o755, tarfile.DIRTYPE
    return entry


def _patterns(folder: Path) -> tuple[str, ...]:
    try:
        text = (folder / ".dockerignore").read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return _USUAL
    except (OSError, UnicodeDecodeError) as fault:
        raise DeployError(f"cannot read {folder / '.dockerignore'}: {fault}") from fault
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _entry(folder: Path, path: str) -> tarfile.TarInfo | None:
    """A path as the layer has it, without its content; None for what a layer cannot hold, or what has just gone."""
    try:
        status = os.lstat(folder / path)
    except FileNotFoundError:
        return None
    entry = _folder(f"{WORKSPACE}/{path}")
    if stat.S_ISLNK(status.st_mode):
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, os.readlink(folder / path), 0o777
    elif stat.S_ISREG(status.st_mode):
        entry.type, entry.size = tarfile.REGTYPE, status.st_size
        entry.mode = 0o755 if status.st_mode & 0o111 else 0o644
    elif not stat.S_ISDIR(status.st_mode):
        return None
    return entry


def _folder(name: str = WORKSPACE) -> tarfile.TarInfo:
    entry = tarfile.TarInfo(name.removeprefix("/"))
    entry.type, entry.mtime, entry.uid, entry.gid = tarfile.DIRTYPE, _TIME, _OWNER, _OWNER
    # Scripts write beside themselves, and a run may use another user than the image names.
    entry.mode = 0o777
    return entry


def _check_size(folder: Path, entries: Iterable[tarfile.TarInfo]) -> None:
    largest = sorted(entries, key=lambda entry: -entry.size)
    total = sum(entry.size for entry in largest)
    if total > MOST:
        named = ", ".join(f"{_within(entry)} ({amount(entry.size)})" for entry in largest[:3])
        raise DeployError(
            f"{folder} holds {amount(total)}, too much to send as code (at most {amount(MOST)}); the largest: {named}",
            f"name what is not code in {folder / '.dockerignore'}, and give data as a mount",
        )


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        tar.addfile(entry)
        return
    try:
        content = path.read_bytes()
    except OSError as fault:
        raise DeployError(f"cannot read {path}: {fault.strerror}", "mend it, or name it in .dockerignore") from fault
    entry.size = len(content)  # it may have been written to since we looked
    tar.addfile(entry, io.BytesIO(content))


def _within(entry: tarfile.TarInfo) -> str:
    return entry.name.removeprefix(WORKSPACE[1:] + "/")
