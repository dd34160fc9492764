"""The user's folder as one layer of an image: the same folder gives the same bytes on every machine, at any time.

Only names, contents and the executable bit count; owner, times and the order of a directory do not.
"""

from __future__ import annotations

import io
import os
import stat
import tarfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from ..core.errors import DeployError, UsageError
from ..core.text import amount
from ..engine import images
from ..run.folders import TRAINER
from . import credentials
from .credentials import NO_CHOICE, Choice
from .model import TRAINER_HOME, WORKSPACE

MOST = 256 << 20  # bytes; more than that is data, which belongs in a mount
# Without a .dockerignore, a push leaves these out: programs make them again.
_USUAL = ("**/.git", "**/__pycache__", "**/*.pyc", "**/.venv", "**/venv", "**/.mypy_cache", "**/.ruff_cache", "runs")
_OWNER = 1000  # the user of Muster's own image
_TIME = 315532800  # 1980: zip files know no earlier year
_TOP = Path(__file__).resolve().parents[2]
# In a wheel both halves are inside the package `muster`, in a checkout beside it.
_INSTALLED = "." in TRAINER
_PACKAGES = {"muster": _TOP if _INSTALLED else _TOP / "muster", "trainer": _TOP / "trainer"}
_HALVES = {"deploy", "trainer"}
_LOOKED_AT = 1 << 20  # bytes of each file that are read: credentials are small, or at the beginning
_LEAST = 8  # letters; a file may contain a shorter value by chance


@dataclass(frozen=True)
class LeftOut:
    """A file or folder that stays here, and why; `asked`: the file that is sent and names it. `never`: not even when
    it is included."""

    path: str
    why: str = ""
    asked: str = ""
    never: bool = False


def pack(folder: Path | None, with_trainer: bool = False, choice: Choice = NO_CHOICE) -> bytes:
    """The tar file of `folder`, to stand at /workspace; `with_trainer`: of trainer and muster at /muster as well.

    What its `.dockerignore` names is left out; without such a file, .git, virtual environments, caches and runs are;
    and credentials always, but for those of `choice`. Links are kept as they are; sockets, pipes and devices are left
    out. Raises UsageError when there is no such folder or nothing in it, DeployError when a file cannot be read or all
    are more than 256 MiB.
    """
    entries = _entries(folder, choice)[0] if folder else []
    written = io.BytesIO()
    with tarfile.open(fileobj=written, mode="w", format=tarfile.PAX_FORMAT, encoding="utf-8") as tar:
        for entry in [_folder(), *entries]:
            _add(tar, entry, (folder or Path()) / _within(entry))
        for name, path in _trainer() if with_trainer else []:
            _add(tar, _part(name, path), path)
    return written.getvalue()


def check(folder: Path, script: str = "", choice: Choice = NO_CHOICE) -> list[LeftOut]:
    """Raise what `pack` would, and UsageError if Muster would not send `script`. Returns the credentials that stay."""
    entries, left_out = _entries(folder, choice)
    names = {_within(entry) for entry in entries}
    if script and Path(script).as_posix() not in names and (folder / script).resolve().is_relative_to(folder.resolve()):
        if why := next((file.why for file in left_out if file.path == Path(script).as_posix()), ""):
            raise UsageError(
                f"{script}: Muster does not send it: {why}", f"remove the credential; or --include {script}"
            )
        raise UsageError(f"{script}: Muster does not send it", f"look at {folder / '.dockerignore'}")
    return left_out


def sent(folder: Path, choice: Choice = NO_CHOICE) -> frozenset[str]:
    """The paths in `folder` that `pack` sends. Raises what `pack` would for the folder."""
    return frozenset(_within(entry) for entry in _entries(folder, choice)[0] if not entry.isdir())


def build_context(dockerfile: Path, choice: Choice = NO_CHOICE) -> list[LeftOut]:
    """The credentials that a build of `dockerfile` could copy into its image: those that no .dockerignore names.

    Raises UsageError if one of them is the file of a secret.
    """
    folder = dockerfile.resolve().parent
    own = dockerfile.resolve().with_name(f"{dockerfile.name}.dockerignore")
    patterns = _lines(own) or _lines(folder / ".dockerignore") or ()
    paths = sorted(set(images.not_ignored(folder, patterns)))
    exposed = _credentials(folder, [entry for path in paths if (entry := _entry(folder, path))], choice)
    for file in exposed:
        if file.never:
            raise UsageError(
                f"{folder / file.path}: the build could copy it into the image: {file.why}", "list it in .dockerignore"
            )
    return exposed


def describe(left_out: Sequence[LeftOut]) -> str:
    """One line: the files that stay here, and the option that sends them."""
    words = []
    for file in left_out:
        why = [file.why, f"{file.asked} names it" if file.asked else ""]
        words.append(file.path + (f" ({', '.join(filter(None, why))})" if any(why) else ""))
    free = next((file.path for file in left_out if not file.never), "")
    how = f"; --include {free} sends it" if free else ""
    return f"not sent: {', '.join(words)}{how}; --secret NAME or NAME=FILE hands a value to the ranks"


def _entries(folder: Path, choice: Choice) -> tuple[list[tarfile.TarInfo], list[LeftOut]]:
    """The entries of the folder to send, by name and without content; and the credentials that stay."""
    if not folder.is_dir():
        raise UsageError(f"no such folder: {folder}", "name the folder that holds your script")
    patterns = _lines(folder / ".dockerignore")
    paths = sorted(set(images.not_ignored(folder, _USUAL if patterns is None else patterns)))
    entries = [entry for path in paths if (entry := _entry(folder, path))]
    _check_size(folder, entries)
    left_out = _credentials(folder, entries, choice)
    stay = [file.path for file in left_out]
    entries = [entry for entry in entries if not _is_in(_within(entry), stay)]
    # Docker's own rules always send .dockerignore itself.
    if not any(not entry.isdir() and _within(entry) != ".dockerignore" for entry in entries):
        raise UsageError(f"nothing to send in {folder}", "look at its .dockerignore")
    return entries, left_out


def _credentials(folder: Path, entries: Sequence[tarfile.TarInfo], choice: Choice) -> list[LeftOut]:
    """The credentials among the entries, each once. Raises UsageError for an `include` that matches nothing."""
    names = [_within(entry) for entry in entries]
    for path in sorted(choice.include):
        if path not in names:
            raise UsageError(
                f"--include {path}: Muster would send nothing of that name", f"as seen from {folder}: --include .env"
            )
    files = [(name, status) for name, path in choice.sources.items() if (status := _status(path))]
    sources = {(status.st_dev, status.st_ino): name for name, status in files}
    left_out, code = dict[str, LeftOut](), dict[str, bytes]()
    for entry, path in zip(entries, names, strict=True):
        if _is_in(path, left_out):
            continue
        credential, content = _judged(folder, path, entry, sources, choice)
        if credential and (credential.never or not _is_in(path, choice.include)):
            left_out[credential.path] = credential
        elif path.endswith(".py"):
            code[path] = content
    return [_with_asking(file, code) for file in left_out.values()]


def _judged(
    folder: Path, path: str, entry: tarfile.TarInfo, sources: Mapping[tuple[int, int], str], choice: Choice
) -> tuple[LeftOut | None, bytes]:
    """Why an entry is a credential, or None, and the beginning of its content if it was read."""
    if entry.issym():
        return None, b""
    status = _status(folder / path)
    if entry.isreg() and status and (secret := sources.get((status.st_dev, status.st_ino))):
        return LeftOut(path, f"the secret {secret} is taken from it", never=True), b""
    if (place := credentials.place_of(path)) and not _is_in(path, choice.include):
        if not any(_is_in(asked, [place]) for asked in choice.include):
            return LeftOut(place), b""
        if not entry.isdir():
            return LeftOut(path), b""
    if not entry.isreg():
        return None, b""
    content = _read(folder / path, _LOOKED_AT)
    if kind := credentials.kind_of(path, content):
        return LeftOut(path, kind), content
    for name, value in choice.values.items():
        if len(value) >= _LEAST and value.encode() in content:
            return LeftOut(path, f"it contains the value of {name}"), content
    return None, content


def _with_asking(file: LeftOut, code: Mapping[str, bytes]) -> LeftOut:
    """The same, with the first file of the code that mentions it."""
    name = PurePosixPath(file.path).name.encode()
    words = [name, b"dotenv"] if name.startswith(b".env") else [name]
    return replace(file, asked=next((path for path, text in code.items() if any(word in text for word in words)), ""))


def _is_in(path: str, places: Iterable[str]) -> bool:
    return any(path == place or path.startswith(f"{place}/") for place in places)


def _status(path: Path) -> os.stat_result | None:
    try:
        return path.stat()
    except OSError:
        return None


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
    entry.mtime, entry.mode, entry.type = _TIME, 0o644, tarfile.REGTYPE
    if path.is_dir():
        entry.mode, entry.type = 0o755, tarfile.DIRTYPE
    return entry


def _lines(ignore: Path) -> tuple[str, ...] | None:
    """The lines of a .dockerignore; None if there is no such file."""
    try:
        text = ignore.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        return None
    except (OSError, UnicodeDecodeError) as fault:
        raise DeployError(f"cannot read {ignore}: {fault}") from fault
    lines = (line.strip() for line in text.splitlines())
    return tuple(line for line in lines if line and not line.startswith("#"))


def _entry(folder: Path, path: str) -> tarfile.TarInfo | None:
    """A path as an entry of the layer, without content; None if a layer cannot hold it, or it has just disappeared."""
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
    # Scripts write into their own folder, and a run may use another user than the image names.
    entry.mode = 0o777
    return entry


def _check_size(folder: Path, entries: Iterable[tarfile.TarInfo]) -> None:
    largest = sorted(entries, key=lambda entry: -entry.size)
    total = sum(entry.size for entry in largest)
    if total > MOST:
        named = ", ".join(f"{_within(entry)} ({amount(entry.size)})" for entry in largest[:3])
        raise DeployError(
            f"{folder} holds {amount(total)}, too much to send as code (at most {amount(MOST)}); the largest: {named}",
            f"list what is not code in {folder / '.dockerignore'}, and mount the data",
        )


def _add(tar: tarfile.TarFile, entry: tarfile.TarInfo, path: Path) -> None:
    if not entry.isreg():
        tar.addfile(entry)
        return
    content = _read(path)
    entry.size = len(content)  # somebody may have written to it since we looked
    tar.addfile(entry, io.BytesIO(content))


def _read(path: Path, most: int = -1) -> bytes:
    try:
        with path.open("rb") as file:
            return file.read(most)
    except OSError as fault:
        raise DeployError(
            f"cannot read {path}: {fault.strerror}", "make it readable, or list it in .dockerignore"
        ) from fault


def _within(entry: tarfile.TarInfo) -> str:
    return entry.name.removeprefix(WORKSPACE[1:] + "/")
