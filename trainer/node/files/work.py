"""The folder in which a script works, and its home folder: both below the run folder; other hosts' files go there.

At each start the sent folder is copied there. A file that was sent and is unchanged is replaced by the version sent
now; a file that the script wrote or changed stays as it is, and is reported if another version was sent. A run's nodes
on one machine share the folder, like ranks under one torchrun. Standard library only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import tarfile
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from muster.errors import Refused
from muster.files import parse, read, replace

from . import replaceable
from .missing_files import OWN, SENT, Entry, Listing

WORK, HOME, KEEP, _SENT, _COPIES, _LOCK = "work", "home", "keep", "sent.json", "copies.json", ".sent.lock"
TOPS, TORN = (WORK, HOME), "torn"
_LINK = "link:"
# The temporary name of a copy until it is complete; a kill may leave such a file.
_ASIDE = re.compile(r"\..*\.muster", re.DOTALL)
_AT_ONCE, _PIECE = 8, 1 << 20
# Limits of Muster's file lists: a run may have this many files, and a list this many bytes for each.
MOST_LISTED, _ROW = 1_000_000, 1 << 9


@dataclass(frozen=True)
class FileTotals:
    """The files that a script left in its folder and its home: how many, and their bytes.

    `top`: the one folder of the run that contains all of them, empty if there are several. `downloads`: the bytes of
    files that can be downloaded again, which are not counted in the others; `place`: the folder that contains these.
    """

    files: int
    bytes: int
    top: str = ""
    downloads: int = 0
    place: str = ""


def prepare(run_folder: Path, sent: Path, wanted: str = "") -> list[str]:
    """Copy `sent` into the run's work folder; returns the paths where the script's own file stays instead.

    `wanted`: the digest of the whole sent folder. Raises Refused if `sent` has another digest, OSError if the folder
    cannot be written.
    """
    work = run_folder / WORK
    for folder in (work, run_folder / HOME):
        folder.mkdir(parents=True, exist_ok=True)
    with locked(run_folder):
        before = _manifest(run_folder)

        @cache
        def is_ours(folder: str) -> bool:
            return not folder or _place(run_folder, f"{WORK}/{folder}") is not None

        def bring(path: str) -> tuple[str, bool]:
            if not is_ours(os.path.dirname(path)):
                return _digest(sent / path), True
            return _bring(sent / path, work / path, before.get(path, ""))

        paths = [path for path, _ in _files(sent)]
        for path in before.keys() - {*paths}:
            if is_ours(os.path.dirname(path)) and _digest(work / path) == before[path]:
                (work / path).unlink()
                with suppress(OSError):  # another file may take the name of the old file's folder
                    os.removedirs((work / path).parent)
        work.mkdir(exist_ok=True)  # the removal above may have removed it, if nothing else was in it
        # For many small files: the disk and the hash work while Python opens the next file.
        with ThreadPoolExecutor(_AT_ONCE) as threads:
            now = dict(zip(paths, threads.map(bring, paths), strict=True))
        stamps = {path: [digest, *_stamp(work / path, stays)] for path, (digest, stays) in now.items()}
        replace(run_folder / _SENT, json.dumps(stamps))
        refuse_other(sent, wanted, {path: digest for path, (digest, _) in now.items()})
    return sorted(path for path, (_, stays) in now.items() if stays)


def refuse_other(sent: Path, wanted: str, digests: Mapping[str, str] | None = None) -> None:
    """Raise Refused if the folder's digest is not `wanted`; `wanted` is empty if no folder was sent.

    `digests`: of the files whose digest is already known.
    """
    if wanted and _content(sent, digests or {}) != wanted:
        raise Refused(
            f"the folder on this host differs from what was sent: a file in {sent} is damaged, or somebody changed it",
            "remove the folder there (muster clean --folders), and deploy again: that sends all of it",
        )


def unpack(
    tar: tarfile.TarFile,
    run_folder: Path,
    node: str,
    wanted: Mapping[str, int] | None = None,
    old: Collection[str] = (),
) -> Iterator[str]:
    """Unpack the files of another node; yields the path of each in the run folder, or an empty text if rejected.

    Their content is as untrusted as the script itself, and stays where the script may write.

    `wanted`: the only accepted paths, each with its size. `old`: the script's files on this node that are replaced.
    Raises TarError, or OSError if the disk is full.
    """
    copies = _known_copies(run_folder)
    try:
        for member in tar:
            if wanted is not None and wanted.get(member.name) != member.size:
                continue
            if taken := _take(tar, member, run_folder, {*copies, *old}):
                copies[taken] = (*_stamp(run_folder / taken, False), node)
            yield taken
    finally:
        replace(run_folder / _COPIES, json.dumps(copies))


def move_in(stage: Path, run_folder: Path, node: str, paths: Collection[str]) -> None:
    """Move another node's files, which `unpack` put into the folder `stage`, to their final places.

    A file that the script itself has written meanwhile stays. Raises OSError.
    """
    copies = _known_copies(run_folder)
    try:
        for path in paths:
            goal = _place(run_folder, path)
            if not goal or (goal.exists() and path not in copies):
                continue
            with suppress(FileExistsError, NotADirectoryError):  # the script has a file with that folder's name
                goal.parent.mkdir(parents=True, exist_ok=True)
                os.replace(stage / path, goal)
                copies[path] = (*_stamp(goal, False), node)
    finally:
        replace(run_folder / _COPIES, json.dumps(copies))


def set_aside(run_folder: Path, folders: Sequence[str]) -> list[str]:
    """Move those of these folders that exist below work and home out of the script's sight; returns which.

    Raises OSError. Nothing is deleted: the folders are then below `torn/` in the run folder.
    """
    moved = []
    for path in folders:
        folder = _place(run_folder, path)
        if not folder or not folder.is_dir():
            continue
        goal = run_folder / TORN / f"{time.time_ns()}" / path
        goal.parent.mkdir(parents=True)
        folder.rename(goal)
        moved.append(path)
    return moved


def listing(run_folder: Path, tops: Sequence[str] = TOPS) -> Listing:
    """The node's files in its work folder and its home, without those that can be downloaded or built again.

    For a large folder this takes seconds.
    """
    sent, copies = sent_stamps(run_folder), _known_copies(run_folder)
    files, links = dict[str, Entry](), list[str]()
    for top in tops:
        for inside, status in _files(run_folder / top):
            path = f"{top}/{inside}"
            if _kind(path, status):
                continue
            if stat.S_ISLNK(status.st_mode):
                links.append(path)
                continue
            stamp = status.st_size, int(status.st_mtime)
            origin = SENT if sent.get(path) == stamp else OWN
            files[path] = Entry(*stamp, copies[path][2] if path in copies else origin)
    return Listing(files, links)


def _known_copies(run_folder: Path) -> dict[str, tuple[int, int, str]]:
    """Size, second of last change and origin of the files that came from other hosts and are unchanged."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {
            path: (size, changed, node)
            for path, (size, changed, node) in _rows(run_folder / _COPIES)
            if _stamp(run_folder / path, False) == (size, changed)
        }
    return {}


def _take(tar: tarfile.TarFile, member: tarfile.TarInfo, run_folder: Path, replaced: Collection[str]) -> str:
    """Write a file that is new here, or may be `replaced`; completely or not at all.

    It writes no link, and nothing outside work and home. Returns the file's path in the run folder, or an empty text if
    it was not written.
    """
    goal = _place(run_folder, member.name)
    content = tar.extractfile(member) if goal and member.isreg() else None
    if not goal or content is None or (goal.exists() and member.name not in replaced):
        return ""
    aside = _aside(goal)
    try:
        goal.parent.mkdir(parents=True, exist_ok=True)
        aside.unlink(missing_ok=True)
    except (FileExistsError, NotADirectoryError):
        return ""  # the script has a file with that folder's name
    try:
        with aside.open("xb") as file:
            shutil.copyfileobj(content, file)
        os.utime(aside, (member.mtime, member.mtime))
        os.replace(aside, goal)
    finally:
        aside.unlink(missing_ok=True)
    return member.name


def count_written(run_folder: Path) -> FileTotals:
    """Totals of the files that the script has written so far on this host; replaceable files are counted separately."""
    downloads, sizes, places, tops = 0, list[int](), set[str](), set[str]()
    for path, status, kind in _wrote(run_folder):
        if not kind:
            sizes.append(status.st_size)
            tops.add(path.partition("/")[0])
        elif kind == replaceable.DOWNLOAD and not stat.S_ISLNK(status.st_mode) and status.st_size:
            downloads += status.st_size
            places.add(os.path.dirname(path))
    place = os.path.commonpath(places) if places else ""
    return FileTotals(len(sizes), sum(sizes), tops.pop() if len(tops) == 1 else "", downloads, place)


def written_since(run_folder: Path, since: float) -> list[str]:
    """The files that the script has written on this host since `since`, newest first, by their paths in its folder."""
    dated = [
        (status.st_mtime, path if top == WORK else f"{top}/{path}")
        for top in (WORK, HOME, KEEP)
        for path, status in _files(run_folder / top)
        if status.st_mtime >= since and not _kind(f"{top}/{path}", status)
    ]
    return [path for _, path in sorted(dated, reverse=True)]


def own_files(run_folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files that the script wrote or changed on this host, by their paths in the run folder."""
    return ((path, status) for path, status, kind in _wrote(run_folder) if not kind)


def _wrote(run_folder: Path) -> Iterator[tuple[str, os.stat_result, str]]:
    """The files that the script wrote, with the kind of replaceable ones.

    Files that are as they were sent, or that came from another node, are left out.
    """
    sent, copies = _manifest(run_folder), _known_copies(run_folder)
    for top in (WORK, HOME, KEEP):
        for path, status in _files(run_folder / top):
            as_sent = top == WORK and path in sent and _digest(run_folder / top / path) == sent[path]
            if f"{top}/{path}" not in copies and not as_sent:
                yield f"{top}/{path}", status, _kind(f"{top}/{path}", status)


def _kind(path: str, status: os.stat_result) -> str:
    """The kind of a replaceable file (replaceable.py); empty for other files."""
    return replaceable.kind_of(path, None if stat.S_ISLNK(status.st_mode) else status.st_size)


def save_changes(run_folder: Path, folder: Path, since: float) -> None:
    """Copy files written in an image's own `folder` after `since` into the work folder: the container will be removed.

    Files that can be downloaded or built again are removed with it.
    """
    for path, status in _files(folder):
        if status.st_ctime > since and not _kind(path, status):
            with suppress(OSError):
                _copy(folder / path, run_folder / WORK / path)


def _place(run_folder: Path, path: str) -> Path | None:
    """Where this path is below work or home.

    None outside them or behind a link, which may lead out of the script's folder.
    """
    place, (top, *parts) = run_folder, path.split("/")
    if top not in TOPS or not parts or {"", ".", ".."} & {*parts}:
        return None
    for part in (top, *parts):
        place /= part
        if place.is_symlink():
            return None
    return place


def _files(folder: Path) -> Iterator[tuple[str, os.stat_result]]:
    """The files and links below `folder`, by their paths in it. A script may leave millions of them."""
    folders = [""]
    while folders:
        inside = folders.pop()
        with suppress(OSError), os.scandir(f"{folder}/{inside}") as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(f"{inside}{entry.name}/")
                elif not _ASIDE.fullmatch(entry.name) and (entry.is_symlink() or entry.is_file()):
                    with suppress(FileNotFoundError):
                        yield f"{inside}{entry.name}", entry.stat(follow_symlinks=False)


def _bring(source: Path, goal: Path, before: str) -> tuple[str, bool]:
    """Copy a sent file; returns its digest, and whether the script's own file stays instead.

    `before`: the digest of the file that an earlier start copied.
    """
    present = _digest(goal)
    digest = _digest(source) if present else None
    if present != digest and present in ("", before):
        # The script may have made a file with a folder's name, or a folder with the file's name.
        with suppress(FileExistsError, NotADirectoryError, IsADirectoryError):
            return _copy(source, goal), False
    return digest or _digest(source), present != digest


def _copy(source: Path, goal: Path) -> str:
    """Copy a file or a link, completely or not at all; returns its digest."""
    goal.parent.mkdir(parents=True, exist_ok=True)
    aside = _aside(goal)
    aside.unlink(missing_ok=True)
    try:
        if source.is_symlink():
            shutil.copy2(source, aside, follow_symlinks=False)
            digest = _digest(source)
        else:
            hashed = hashlib.sha256()
            with source.open("rb", buffering=0) as came, aside.open("xb", buffering=0) as written:
                while piece := came.read(_PIECE):
                    hashed.update(piece)
                    view = memoryview(piece)
                    while view:
                        view = view[written.write(view) :]
            shutil.copystat(source, aside)
            digest = hashed.hexdigest()
        os.replace(aside, goal)
    finally:
        aside.unlink(missing_ok=True)
    return digest


def _aside(goal: Path) -> Path:
    """The temporary name of a copy until it is complete: unique, and not too long for the file system."""
    return goal.with_name(f".{hashlib.sha256(os.fsencode(goal.name)).hexdigest()}.muster")


def _content(folder: Path, digests: Mapping[str, str]) -> str:
    """The digest of a folder's whole content, computed as in deploy/send/folder/content.py (contract.md).

    `digests`: of the files whose digest is already known.
    """
    records, folders = list[bytes](), [""]
    while folders:
        inside = folders.pop()
        with os.scandir(f"{folder}/{inside}") as entries:
            for entry in entries:
                path, status = f"{inside}{entry.name}", entry.stat(follow_symlinks=False)
                digest, size = digests.get(path) or _digest(folder / path), status.st_size
                kind = "x" if status.st_mode & 0o100 else "f"
                if entry.is_symlink():
                    target = os.fsencode(os.readlink(entry.path))
                    kind, size, digest = "l", len(target), hashlib.sha256(target).hexdigest()
                elif entry.is_dir():
                    folders.append(f"{path}/")
                    kind, size, digest = "d", 0, "-"
                records.append(os.fsencode(f"{kind} {size} {digest} {path}"))
    return hashlib.sha256(b"\0".join(sorted(records))).hexdigest()


def _digest(path: Path) -> str:
    """The digest of a file's content, or the target of a link; empty if neither exists."""
    try:
        if path.is_symlink():
            return _LINK + os.readlink(path)
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError:
        return ""


def _stamp(path: Path, changed: bool) -> tuple[int, int]:
    """Size and second of last change of an unchanged sent file: a fetch leaves the file out while they match."""
    try:
        status = path.lstat()
    except OSError:
        return -1, 0
    return (-1, 0) if changed else (status.st_size, int(status.st_mtime))


def sent_stamps(run_folder: Path) -> Mapping[str, tuple[int, int]]:
    """Size and second of last change of each file as it was sent, by its path in the run folder."""
    with suppress(OSError, ValueError, TypeError, AttributeError):
        return {f"{WORK}/{path}": (size, changed) for path, (_, size, changed) in _rows(run_folder / _SENT)}
    return {}


def _manifest(run_folder: Path) -> Mapping[str, str]:
    """The digest of each file that was sent, by its path in the work folder."""
    with suppress(OSError, ValueError, LookupError, TypeError, AttributeError):
        return {path: row[0] for path, row in _rows(run_folder / _SENT)}
    return {}


def _rows(path: Path) -> Iterable[tuple[str, Any]]:
    """The rows of a list of files. Raises OSError, ValueError or AttributeError if there is no valid list."""
    return parse(read(path, MOST_LISTED * _ROW), MOST_LISTED + 1).items()  # type: ignore[no-any-return]


@contextmanager
def locked(run_folder: Path) -> Iterator[None]:
    """Hold the lock against other processes that copy files: of this node, and of other nodes on this machine."""
    with (run_folder / _LOCK).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
