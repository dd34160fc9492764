"""The checkpoint store: one folder for each step. A kill at any moment leaves the newest checkpoint usable.

`prune` decides which checkpoints are kept. A checkpoint is `checkpoints/step-00000200/` with `state.pt` (torch.save)
and `manifest.json`. torch.load accepts a flipped bit without an error, so the manifest has the state's SHA-256 and a
checksum of itself. `write` writes a checkpoint under a temporary name, syncs it, reads it back from the disk, verifies
it, and only then renames it. Names that start with a dot are temporary: `.new-` is partly written, `.del-` partly
deleted, `.old-` about to be replaced.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import pickle
import re
import shutil
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from ..errors import CheckpointError, NewerFormat, TrainError
from ..files import amount
from . import shards
from .manifest import ACCEPTED, MANIFEST, STATE, File, Manifest, manifest_or_none, read_manifest

_STEP_FOLDER = re.compile(r"(?:\.old-)?(step-\d{8,})")


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint folder and its manifest."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that is unusable, and the reason."""

    path: Path
    reason: str


def write(
    folder: Path,
    step: int,
    state: dict[str, Any],
    *,
    metric: float | None,
    summary: dict[str, Any],
    created: float | None = None,
) -> Path:
    """Write `state` as the checkpoint of `step`, replace an existing one of that step, and return its folder.

    `state` is a nested dict of tensors and plain values; `summary` has plain values that JSON can hold. Only one writer
    may use a folder. `created`: the checkpoint's time, when ranks write the same checkpoint to several disks. Raises
    TrainError if the disk is full or fails; the earlier checkpoints are then intact.
    """
    target = folder / f"step-{step:08d}"
    temporary = folder / f".new-{target.name}"
    file = HashingFile()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        clean_up(folder)
        temporary.mkdir()
        file.save(state, temporary / STATE)
        files = {STATE: File(file.sha256.hexdigest(), file.bytes)}
        manifest = Manifest(step, created or now(folder), metric, files, summary)
        write_synced(temporary / MANIFEST, manifest.render())
        sync_folder(temporary)
        read_back(temporary, STATE, files[STATE])
        rename_into_place(temporary, target)
    except OSError as error:
        shutil.rmtree(temporary, ignore_errors=True)  # before `write_error` measures the free space
        raise write_error(folder, step, file.bytes, error) from error
    finally:
        shutil.rmtree(temporary, ignore_errors=True)
    return target


def verify(path: Path) -> Manifest:
    """Read the whole checkpoint folder `path` and return its manifest. Raises CheckpointError if it is unusable."""
    manifest = read_manifest(path)
    for name, facts in manifest.files.items():
        with verified(path, name, facts):
            pass
    return manifest


def load(path: Path) -> tuple[dict[str, Any], Manifest]:
    """The state in the checkpoint folder `path`, on the CPU, and its manifest. Raises CheckpointError.

    This decodes the same open file that it verified, so nobody can replace the file in between. The parts of a sharded
    checkpoint are joined; all of its files must be in the folder.
    """
    manifest = read_manifest(path)
    if manifest.sharded:
        verify(path)
        return shards.together(path, manifest), manifest
    with verified(path, STATE, manifest.files[STATE]) as file:
        file.seek(0)
        try:
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            reason = f"{path}: the file is intact, but torch {torch.__version__} cannot decode it: {error}"
            raise CheckpointError(reason, "load it with the torch version that wrote it") from error
        return state, manifest


def locate(path: Path) -> tuple[Path, list[Damaged]]:
    """The step folder that `path` (a step, checkpoints or run folder) means, and the newer damaged checkpoints.

    If `path` is a step folder, this does not verify it; `load` does. Raises CheckpointError if there is no checkpoint.
    """
    if not path.is_dir() or _is_one(path):
        read_manifest(path)
        return path, []
    newest, damaged = _first_usable([each for _, each in listed(path)])
    if newest is None:
        reasons = "".join(f"\n  {checkpoint.reason}" for checkpoint in damaged)
        raise CheckpointError(f"{path}: it has no usable checkpoint{':' if reasons else ''}{reasons}", ACCEPTED)
    return newest.path, damaged


def newest_usable(folder: Path) -> tuple[Checkpoint | None, list[Damaged]]:
    """The newest intact checkpoint in a checkpoints folder, and the damaged ones that are newer.

    The newest is the one that was written last. It may not have the highest step, because a run can go back to an
    earlier step and continue from there. Raises NewerFormat if a newer Muster wrote it.
    """
    return _first_usable([path for _, path in _dated(folder)])


def listed(folder: Path) -> list[tuple[float, Path]]:
    """The checkpoints in `folder`, not verified, with the unix time when each was written; the newest first.

    `folder` may also be a run folder, or a checkpoint itself.
    """
    if _is_one(folder):
        return [(_creation(folder), folder)] if folder.is_dir() else []
    folder = folder / "checkpoints" if (folder / "checkpoints").is_dir() else folder
    return _dated(folder)


def _is_one(path: Path) -> bool:
    """Whether this path is a checkpoint itself."""
    return bool(_STEP_FOLDER.fullmatch(path.name)) or (path / MANIFEST).exists()


def _first_usable(paths: list[Path]) -> tuple[Checkpoint | None, list[Damaged]]:
    damaged: list[Damaged] = []
    for path in paths:
        try:
            return Checkpoint(path, verify(path)), damaged
        except NewerFormat:
            raise
        except CheckpointError as error:
            damaged.append(Damaged(path, error.message))
    return None, damaged


def prune(folder: Path, keep_last: int, keep_best: bool, verified: Path | None = None) -> list[Path]:
    """Delete all but the `keep_last` newest checkpoints and, if `keep_best`, the one with the highest metric.

    First this verifies the newest checkpoint, unless it is the one that `write` has just `verified`. If no checkpoint
    is intact, it deletes nothing. It never deletes a folder without a good manifest, and a truncated checkpoint does
    not count as one of those to keep. Returns the folders to delete, some of which may remain if the disk fails.
    """
    clean_up(folder)
    with_manifest = [Checkpoint(path, manifest) for _, path in _dated(folder) if (manifest := manifest_or_none(path))]
    if with_manifest and with_manifest[0].path == verified:
        newest: Checkpoint | None = with_manifest[0]
    else:
        newest, _ = _first_usable([checkpoint.path for checkpoint in with_manifest])
    if newest is None:
        return []
    complete = [point for point in with_manifest if _complete(point)]
    keep = {newest.path, *(checkpoint.path for checkpoint in complete[:keep_last])}
    if keep_best and (best := _best(complete)):
        keep.add(best)
    then = newest.manifest.created
    doomed = [point.path for point in with_manifest if point.manifest.created < then and point.path not in keep]
    for path in doomed:
        with suppress(OSError):  # the next prune tries again
            _delete(path)
    return doomed


class HashingFile:
    """A file for torch.save that hashes the data and counts all bytes, including those that a full disk rejects.

    On a 300 MiB tensor, torch.save to a path blocked the interpreter's other threads for 40-65 ms at a time. With a
    Python file it blocks them for about 10 ms, as an idle thread does, because hashing and writing release the GIL.
    """

    def __init__(self) -> None:
        self.sha256, self.bytes = hashlib.sha256(), 0
        self._file: Any = None
        self._error: OSError | None = None

    def save(self, state: dict[str, Any], path: Path) -> None:
        """Write `state` to `path` and sync it. Raises OSError, but only after `bytes` has counted all of the state."""
        with path.open("wb", buffering=0) as self._file:
            torch.save(state, cast(IO[bytes], self))
            if self._error:
                raise self._error
            os.fsync(self._file.fileno())
            # Drop the file from the page cache, so that `read_back` reads the disk.
            if sys.platform == "linux":
                os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def write(self, data: memoryview) -> int:
        """Called by torch's C++ writer, which would turn an OSError into a crash report: `save` raises it later."""
        self.bytes += len(data)
        try:
            rest = data
            while rest and not self._error:
                count = self._file.write(rest)
                self.sha256.update(rest[:count])
                rest = rest[count:]
        except OSError as error:
            self._error = error
        return len(data)

    def flush(self) -> None:
        """Do nothing, because the file has no buffer. torch.save calls this."""


@contextmanager
def verified(path: Path, name: str, facts: File) -> Iterator[BinaryIO]:
    """The open file `name` of the checkpoint folder `path`. Raises CheckpointError if it does not match `facts`."""
    try:
        with (path / name).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != facts.bytes:
                raise CheckpointError(f"{path}: {name} is truncated: {size} bytes, not {facts.bytes}", ACCEPTED)
            if hashlib.file_digest(file, "sha256").hexdigest() != facts.sha256:
                raise CheckpointError(
                    f"{path}: {name} was altered: its SHA-256 is not the one in the manifest", ACCEPTED
                )
            yield file
    except OSError as error:
        raise CheckpointError(f"{path}: {name} cannot be read: {error.strerror}", ACCEPTED) from error


def _complete(checkpoint: Checkpoint) -> bool:
    """Whether the files in the folder have their full size.

    The other files of a sharded checkpoint are on other hosts.
    """
    manifest = checkpoint.manifest
    files = ((checkpoint.path / name, file.bytes) for name, file in manifest.files.items())
    return all(path.stat().st_size == whole if path.is_file() else manifest.sharded for path, whole in files)


def _dated(folder: Path) -> list[tuple[float, Path]]:
    """Every checkpoint in `folder` with the time when it was written, the newest first.

    An `.old-` folder counts if its replacement was not yet renamed into place.
    """
    steps: dict[str, Path] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        match = _STEP_FOLDER.fullmatch(path.name)
        if match and (path.name == match[1] or match[1] not in steps):
            steps[match[1]] = path
    return sorted(((_creation(path), path) for path in steps.values()), reverse=True)


def _creation(path: Path) -> float:
    if manifest := manifest_or_none(path):
        return manifest.created
    with suppress(OSError):
        return path.stat().st_mtime
    return 0.0


def now(folder: Path) -> float:
    """The current time, but later than the newest checkpoint: rank 0 may have moved to a host whose clock is behind."""
    return max(time.time(), newest_time(folder) + 0.001)


def newest_time(folder: Path) -> float:
    """When the newest checkpoint in a checkpoints folder was written; 0 if there is none."""
    return next((created for created, _ in _dated(folder)), 0.0)


def _best(checkpoints: list[Checkpoint]) -> Path | None:
    scored = (
        (point.manifest.metric, point.manifest.created, point.path)
        for point in checkpoints
        if point.manifest.metric is not None and math.isfinite(point.manifest.metric)
    )
    return max(scored, default=(0, 0, None))[2]


def read_back(temporary: Path, name: str, facts: File) -> None:
    """Verify the data on the disk, and that torch can decode it (mapped, so it does not read the tensors again)."""
    try:
        with verified(temporary, name, facts):
            pass
    except CheckpointError as error:
        raise TrainError(f"the disk returned different data from what Muster wrote: {error.message}") from error
    torch.load(temporary / name, map_location="cpu", weights_only=True, mmap=True)


def rename_into_place(temporary: Path, target: Path) -> None:
    """Rename a complete folder to its final name, in place of an older one."""
    replaced = target.with_name(f".old-{target.name}")
    if target.exists():
        target.rename(replaced)
    temporary.rename(target)
    sync_folder(target.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def clean_up(folder: Path) -> None:
    """Remove what a killed writer left. If it was killed between two renames, put the old checkpoint back."""
    for path in folder.glob(".*-step-*"):
        target = path.with_name(path.name.partition("-")[2])
        if path.name.startswith(".old-") and not target.exists():
            path.rename(target)
        elif path.name.startswith((".new-", ".del-", ".old-")):
            shutil.rmtree(path, ignore_errors=True)


def _delete(path: Path) -> None:
    """Rename the folder, then remove it: a kill in between must not leave what looks like a damaged checkpoint."""
    doomed = path.with_name(f".del-{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def write_synced(path: Path, text: str) -> None:
    """Write a text file and sync it to the disk."""
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def sync_folder(folder: Path) -> None:
    """Sync the folder: only then is a rename in it on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def write_error(folder: Path, step: int, needed: int, error: OSError) -> TrainError:
    """The error for a checkpoint of `needed` bytes that cannot be written."""
    words = {errno.ENOSPC: "the disk is full", errno.EDQUOT: "the quota of this disk is used up"}
    if error.errno not in words:
        return TrainError(f"{folder}: the checkpoint of step {step} cannot be written: {error.strerror or error}")
    room = os.statvfs(next(filter(Path.exists, (folder, *folder.parents))))
    free, what = amount(room.f_bavail * room.f_frsize), words[error.errno]
    if room.f_files and room.f_favail < 3:  # the unfinished files are removed by now; some file systems have no limit
        what = "the disk has as many files as it can hold (df -i)"
    return TrainError(
        f"{folder}: {what}: the checkpoint of step {step} needs {amount(needed)}, {free} are free",
        "free some space or keep fewer checkpoints; the earlier checkpoints are intact",
    )
