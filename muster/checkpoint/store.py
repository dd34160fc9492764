"""The checkpoint store: one folder a step, and no moment at which a kill leaves the run without a usable one.

A checkpoint is `checkpoints/step-00000200/` with `state.pt` (torch.save) and `manifest.json`. torch.load accepts a
flipped bit without a word, so the manifest holds the state's SHA-256, and a checksum of itself. A checkpoint is
written aside, synced, read back from the disk and verified, and only then renamed to its place. Names that start with
a dot are work in progress: `.new-` is half-written, `.del-` half-deleted, `.old-` the one being replaced.
"""

from __future__ import annotations

import errno
import hashlib
import math
import os
import pickle
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

import torch

from ..errors import CheckpointError, NewerFormat, TrainError
from .manifest import ACCEPTED, MANIFEST, STATE, Manifest, manifest_or_none, read_manifest

_PLACE = re.compile(r"(?:\.old-)?(step-\d{8,})")


@dataclass(frozen=True)
class Found:
    """A checkpoint that was verified."""

    path: Path
    manifest: Manifest


@dataclass(frozen=True)
class Damaged:
    """A checkpoint that was passed over, and why."""

    path: Path
    reason: str


def write(folder: Path, step: int, state: dict[str, Any], *, metric: float | None, summary: dict[str, Any]) -> Path:
    """Write `state` as the checkpoint of `step`, replacing one of the same step, and return its folder.

    `state` is a nested dict of tensors and plain values, `summary` plain facts that JSON can hold. One writer a folder.
    Raises TrainError if the disk is full or fails; what was there before then still stands.
    """
    place = folder / f"step-{step:08d}"
    aside = folder / f".new-{place.name}"
    sink = _Sink()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _tidy(folder)
        aside.mkdir()
        sink.save(state, aside / STATE)
        manifest = Manifest(step, _now(folder), metric, sink.sha256.hexdigest(), sink.bytes, summary)
        _write_synced(aside / MANIFEST, manifest.render())
        _sync_folder(aside)
        _prove(aside)
        _publish(aside, place)
    except OSError as error:
        shutil.rmtree(aside, ignore_errors=True)  # before it is told how much is free
        raise _not_written(folder, step, sink.bytes, error) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return place


def verify(path: Path) -> Manifest:
    """Read all of the checkpoint folder `path` and return its manifest; CheckpointError says why it is unusable."""
    with _verified(path) as (_, manifest):
        return manifest


def load(path: Path) -> tuple[dict[str, Any], Manifest]:
    """The state in the checkpoint folder `path`, on the CPU, and its manifest. Raises CheckpointError.

    The file that was verified stays open and is the one decoded, so nothing can come between the two.
    """
    with _verified(path) as (file, manifest):
        file.seek(0)
        try:
            state: dict[str, Any] = torch.load(file, map_location="cpu", weights_only=True)
        except (RuntimeError, pickle.UnpicklingError, EOFError) as error:
            reason = f"{path}: the file is whole, but torch {torch.__version__} cannot decode it: {error}"
            raise CheckpointError(reason, "load it with the torch version that wrote it") from error
        return state, manifest


def locate(path: Path) -> tuple[Path, list[Damaged]]:
    """The step folder meant by `path` (a step, checkpoints or run folder) and newer ones that were passed over.

    A step folder given by name is returned unread: `load` verifies it. Raises CheckpointError if there is none.
    """
    if not path.is_dir() or (path / MANIFEST).exists() or _PLACE.fullmatch(path.name):
        read_manifest(path)
        return path, []
    folder = path / "checkpoints" if (path / "checkpoints").is_dir() else path
    found, damaged = newest_usable(folder)
    if found is None:
        reasons = "".join(f"\n  {one.reason}" for one in damaged)
        raise CheckpointError(f"{path}: no usable checkpoint in it{':' if reasons else ''}{reasons}", ACCEPTED)
    return found.path, damaged


def newest_usable(folder: Path) -> tuple[Found | None, list[Damaged]]:
    """The newest checkpoint in a checkpoints folder that verifies, and the damaged ones that are newer than it.

    Newest is the last written, not the highest step: a run may have gone back to an earlier step and on from there.
    Raises NewerFormat where a newer Muster wrote it.
    """
    return _first_usable(_newest_first(folder))


def _first_usable(paths: list[Path]) -> tuple[Found | None, list[Damaged]]:
    damaged: list[Damaged] = []
    for path in paths:
        try:
            return Found(path, verify(path)), damaged
        except NewerFormat:
            raise
        except CheckpointError as error:
            damaged.append(Damaged(path, error.message))
    return None, damaged


def prune(folder: Path, keep_last: int, keep_best: bool, proven: Path | None = None) -> list[Path]:
    """Delete all but the `keep_last` newest checkpoints and, if `keep_best`, the one with the highest metric.

    Nothing is deleted unless the newest was read and verified just now (`proven`: by `write`), nor ever a folder
    without a manifest of ours. A truncated checkpoint does not count among those to keep. Returns the folders that had
    to go.
    """
    _tidy(folder)
    paths = _newest_first(folder)
    ours = [Found(path, manifest) for path in paths if (manifest := manifest_or_none(path))]
    newest = ours[0] if ours and ours[0].path == proven else _first_usable([one.path for one in ours])[0]
    if newest is None:
        return []
    whole = [one for one in ours if _size(one.path / STATE) == one.manifest.bytes]
    kept = {newest.path, *(one.path for one in whole[:keep_last])}
    if keep_best and (best := _best(whole)):
        kept.add(best)
    doomed = [one.path for one in ours if one.path not in kept and one.manifest.created < newest.manifest.created]
    for path in doomed:
        with suppress(OSError):  # the next prune tries again
            _delete(path)
    return doomed


class _Sink:
    """A file for torch.save that hashes what passes through, and counts what it would have taken had the disk held it.

    torch.save to a path kept the interpreter from other threads for 40-65 ms at a time on a 300 MiB tensor; to a
    Python file for no longer than an idle thread does (about 10 ms), as hashing and writing let go of the GIL.
    """

    def __init__(self) -> None:
        self.sha256, self.bytes = hashlib.sha256(), 0
        self._file: Any = None
        self._error: OSError | None = None

    def save(self, state: dict[str, Any], path: Path) -> None:
        """Write `state` to `path` and sync it. Raises OSError, after `bytes` has counted the whole of it."""
        with path.open("wb", buffering=0) as self._file:
            torch.save(state, cast(IO[bytes], self))
            if self._error:
                raise self._error
            os.fsync(self._file.fileno())
            # What is read back to be verified shall come from the disk, not from memory.
            if hasattr(os, "posix_fadvise"):
                os.posix_fadvise(self._file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def write(self, data: memoryview) -> int:
        """Called by torch's C++ writer, which turns an OSError into a crash report: so it is kept for later."""
        self.bytes += len(data)
        try:
            left = data
            while left and not self._error:
                done = self._file.write(left)
                self.sha256.update(left[:done])
                left = left[done:]
        except OSError as error:
            self._error = error
        return len(data)

    def flush(self) -> None:
        """Nothing is held back; torch.save asks."""


@contextmanager
def _verified(path: Path) -> Iterator[tuple[BinaryIO, Manifest]]:
    manifest = read_manifest(path)
    try:
        with (path / STATE).open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            if size != manifest.bytes:
                raise CheckpointError(f"{path}: {STATE} is truncated: {size} bytes, not {manifest.bytes}", ACCEPTED)
            if hashlib.file_digest(file, "sha256").hexdigest() != manifest.sha256:
                raise CheckpointError(f"{path}: {STATE} was altered: its SHA-256 is not the manifest's", ACCEPTED)
            yield file, manifest
    except OSError as error:
        raise CheckpointError(f"{path}: {STATE} cannot be read: {error.strerror}", ACCEPTED) from error


def _size(path: Path) -> int | None:
    with suppress(OSError):
        return path.stat().st_size
    return None


def _newest_first(folder: Path) -> list[Path]:
    """Every checkpoint in `folder`, the one being replaced standing in where its successor is not yet in place."""
    places: dict[str, Path] = {}
    for path in folder.iterdir() if folder.is_dir() else ():
        named = _PLACE.fullmatch(path.name)
        if named and (path.name == named[1] or named[1] not in places):
            places[named[1]] = path
    return sorted(places.values(), key=_age, reverse=True)


def _age(path: Path) -> tuple[float, str]:
    manifest = manifest_or_none(path)
    if manifest:
        return manifest.created, path.name
    with suppress(OSError):
        return path.stat().st_mtime, path.name
    return 0.0, path.name


def _now(folder: Path) -> float:
    """The time, but never before the newest checkpoint's: rank 0 may have moved to a host whose clock is behind."""
    earlier = (manifest.created for path in _newest_first(folder) if (manifest := manifest_or_none(path)))
    return max(time.time(), max(earlier, default=0.0) + 0.001)


def _best(whole: list[Found]) -> Path | None:
    scored = [(one.manifest.metric, one.manifest.created, one.path) for one in whole if one.manifest.metric is not None]
    return max((score for score in scored if math.isfinite(score[0])), default=(0, 0, None))[2]


def _prove(aside: Path) -> None:
    """Read back what was written: the bytes, and that torch decodes them (mapped: the tensors are not read again)."""
    try:
        verify(aside)
    except CheckpointError as error:
        raise TrainError(f"the disk does not give back what was written to it: {error.message}") from error
    torch.load(aside / STATE, map_location="cpu", weights_only=True, mmap=True)


def _publish(aside: Path, place: Path) -> None:
    replaced = place.with_name(f".old-{place.name}")
    if place.exists():
        place.rename(replaced)
    aside.rename(place)
    _sync_folder(place.parent)
    shutil.rmtree(replaced, ignore_errors=True)


def _tidy(folder: Path) -> None:
    """Clear away what a killed writer left; if it was killed between two renames, put the old checkpoint back."""
    for path in folder.glob(".*-step-*"):
        place = path.with_name(path.name.partition("-")[2])
        if path.name.startswith((".new-", ".del-")) or (path.name.startswith(".old-") and place.exists()):
            shutil.rmtree(path, ignore_errors=True)
        elif path.name.startswith(".old-"):
            path.rename(place)


def _delete(path: Path) -> None:
    """Renamed first: a kill half-way through must not leave what looks like a damaged checkpoint."""
    doomed = path.with_name(f".del-{path.name}")
    path.rename(doomed)
    shutil.rmtree(doomed, ignore_errors=True)


def _write_synced(path: Path, text: str) -> None:
    with path.open("w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


def _sync_folder(folder: Path) -> None:
    """A rename is on the disk only once the folder that holds the name is synced."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def _not_written(folder: Path, step: int, needed: int, error: OSError) -> TrainError:
    if error.errno not in (errno.ENOSPC, errno.EDQUOT):
        return TrainError(f"{folder}: the checkpoint of step {step} cannot be written: {error.strerror or error}")
    free = shutil.disk_usage(folder).free
    return TrainError(
        f"{folder}: the disk is full: the checkpoint of step {step} needs {needed / 1e6:,.1f} MB, "
        f"{free / 1e6:,.1f} MB are free",
        "free some space or keep fewer checkpoints; earlier checkpoints stand",
    )
