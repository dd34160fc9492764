"""Find the newest usable checkpoint on all ranks' disks, and which parts on these disks form one checkpoint.

Each rank that looks reports what it has. The rank with the newest checkpoint verifies it, reads it and sends it to the
others. If that checkpoint is damaged, the next newest is tried, which may be another rank's copy of the same one. For a
sharded checkpoint, each host verifies the files that it has; the checkpoint is usable if every file is good on some
host.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch.distributed as dist

from .. import exchange
from ..errors import CheckpointError, NewerFormat
from . import shards, store
from .manifest import FIRST, Manifest, manifest_or_none, parse_manifest

_Stamp = list[int]


@dataclass(frozen=True)
class Search:
    """The result of a search: the `path` and `state` of the newest usable checkpoint (None if there is none).

    For a sharded checkpoint, the tensors are not in `state`: each rank reads its own from `shards`. `created`: when the
    checkpoint was written, by its host's clock.
    """

    path: str | None
    state: dict[str, Any] | None
    damaged: list[store.Damaged]
    shards: shards.Shards | None = None
    created: float = 0.0


@dataclass(frozen=True)
class _Candidate:
    """A checkpoint of rank `owner`, or a sharded one with its `manifest` and, for each rank that has it, its folder."""

    created: float
    owner: int
    path: str
    manifest: str
    owners: dict[int, str]


def newest_of_all_ranks(folder: Path, *, looks: bool, group: dist.ProcessGroup | None = None) -> Search:
    """Search `folder` on each rank with `looks`; all ranks call this and get the same result.

    `folder` is a folder of checkpoints, or a checkpoint. Ranks of one host see the same disk, so only one of them
    should look. Raises NewerFormat on every rank if a newer Muster wrote the checkpoint that would be used, and
    CheckpointError if there are checkpoints but none is usable.
    """
    rank, _ = exchange.rank_and_world(group)
    mine = [_entry(created, path) for created, path in store.listed(folder)] if looks else []
    damaged: list[store.Damaged] = []
    incomplete = False
    for candidate in _candidates(exchange.all_of(mine, group)):
        if candidate.manifest:
            search = _sharded(candidate, rank, group)
            if isinstance(search, Search):
                return Search(search.path, search.state, damaged, search.shards, candidate.created)
            damaged.append(store.Damaged(Path(candidate.path), search))
            incomplete = True
            continue
        answer = _read(Path(candidate.path)) if rank == candidate.owner else None
        answer = exchange.broadcast(answer, candidate.owner, group)
        if "newer" in answer:
            raise NewerFormat(*answer["newer"])
        if "damaged" in answer:
            damaged.append(store.Damaged(Path(candidate.path), answer["damaged"]))
        else:
            return Search(candidate.path, answer["state"], damaged, None, candidate.created)
    if damaged:  # not step 0: its new checkpoints would replace damaged ones that can perhaps be repaired
        reasons = "".join(f"\n  {checkpoint.reason}" for checkpoint in damaged)
        text = "no checkpoint is complete on these hosts" if incomplete else "each checkpoint there is damaged"
        first = "start the run on the hosts that wrote the checkpoint" if incomplete else "put a good copy there"
        raise CheckpointError(f"{folder}: {text}:{reasons}", f"{first}; or remove the folder to begin at step 0")
    return Search(None, None, [])


def _entry(created: float, path: Path) -> tuple[float, str, str]:
    manifest = manifest_or_none(path)
    return created, str(path), manifest.render() if manifest and manifest.sharded else ""


def _candidates(everyone: list[list[tuple[float, str, str]]]) -> list[_Candidate]:
    """All checkpoints, the newest first; a sharded one is listed once."""
    candidates: list[_Candidate] = []
    parted: dict[str, _Candidate] = {}
    for owner, own in enumerate(everyone):
        for created, path, manifest in own:
            if manifest not in parted:
                candidates.append(_Candidate(created, owner, path, manifest, {}))
            if manifest:
                parted.setdefault(manifest, candidates[-1]).owners[owner] = path
    return sorted(candidates, key=lambda candidate: (candidate.created, -candidate.owner, candidate.path), reverse=True)


def _read(path: Path) -> dict[str, Any]:
    try:
        return {"state": store.load(path)[0]}
    except NewerFormat as error:
        return {"newer": (error.message, error.hint)}
    except CheckpointError as error:
        return {"damaged": error.message}


def _sharded(candidate: _Candidate, rank: int, group: dist.ProcessGroup | None) -> Search | str:
    """Read a sharded checkpoint with all ranks; returns the reason if they cannot."""
    manifest = parse_manifest(candidate.manifest)
    own = Path(candidate.owners.get(rank, candidate.path))
    mine = (_verify(own, manifest), _stamps(own, manifest)) if rank in candidate.owners else ({}, {})
    answers = exchange.all_of(mine, group)
    if fault := _fault(candidate, manifest, [faults for faults, _ in answers]):
        return fault
    # A rank that did not look may read a file if a rank that did look has verified that very file.
    good: dict[str, list[_Stamp]] = {
        name: [stamps[name] for faults, stamps in answers if faults.get(name) == ""] for name in manifest.files
    }
    stamps = _stamps(own, manifest)
    here = {name for name in manifest.files if stamps.get(name) in good[name]}
    holders = {
        name: next(owner for owner, (faults, _) in enumerate(answers) if faults.get(name) == "")
        for name in manifest.files
    }
    rest = shards.rest_of(own) if rank == holders[FIRST] else None
    state = exchange.broadcast(rest, holders[FIRST], group)
    return Search(str(own), state, [], shards.Shards(own, holders, here, group))


def _verify(path: Path, manifest: Manifest) -> dict[str, str]:
    """The fault of each file on this disk, by its name; an empty text for a good file."""

    def fault(name: str) -> str:
        try:
            with store.verified(path, name, manifest.files[name]):
                return ""
        except CheckpointError as error:
            return error.message

    here = [name for name in manifest.files if (path / name).exists()]
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as threads:  # hashing releases the GIL
        return dict(zip(here, threads.map(fault, here), strict=True))


def _stamps(path: Path, manifest: Manifest) -> dict[str, _Stamp]:
    """For each file on this disk, the numbers that distinguish it from every other file."""
    stamps = {}
    for name in manifest.files:
        with suppress(OSError):
            facts = (path / name).stat()
            stamps[name] = [facts.st_dev, facts.st_ino, facts.st_size, facts.st_mtime_ns]
    return stamps


def _fault(candidate: _Candidate, manifest: Manifest, answers: list[dict[str, str]]) -> str:
    """Why the checkpoint cannot be used, with the host of each bad file; an empty text if it can be used."""
    faults = []
    for name, file in manifest.files.items():
        texts = [answer[name] for answer in answers if name in answer]
        if not texts:
            faults.append(f"{name} from {file.host} is on none of these hosts")
        elif "" not in texts:  # the folder has the same path on all hosts
            faults.append(f"{texts[0].removeprefix(f'{candidate.path}: ')} (on {file.host})")
    return f"{candidate.path}: {'; '.join(faults)}" if faults else ""
