"""Ranks that write a checkpoint together: each rank writes its own file, and one rank on each disk the manifest.

The writer threads of the ranks communicate through their own group, while training uses the other groups. No rank
publishes the checkpoint before every file is on a disk and verified, and no rank removes an older checkpoint before all
ranks have published.
"""

from __future__ import annotations

import os
import shutil
import socket
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch.distributed as dist

from .. import exchange
from ..errors import TrainError
from . import store
from .disks import lowest_on_each
from .manifest import MANIFEST, File, Manifest
from .shards import name_of

_PATIENCE = timedelta(hours=1)  # another host may have a slow disk; a lost peer is noticed immediately


class Joint:
    """The ranks as one writer of a checkpoints folder, which each host has. All ranks build this at the same place.

    `leads`: this rank publishes and prunes for the ranks that see the same disk.
    """

    def __init__(self, folder: Path) -> None:
        self._rank, self._world = exchange.rank_and_world()
        self._host = os.environ.get("MUSTER_NODE") or socket.gethostname()
        self._group = dist.new_group(backend="gloo", timeout=_PATIENCE)
        self.leads = lowest_on_each(folder, self._group)[self._rank] in (self._rank, -1)

    def write(
        self, folder: Path, step: int, part: dict[str, Any], metric: float | None, summary: dict[str, Any]
    ) -> tuple[Path, int]:
        """Write this rank's part of the checkpoint of `step`.

        Returns its folder and the size of all ranks' files in bytes. If one rank fails, raises TrainError on every
        rank, with the name of the failed rank's host.
        """
        target = folder / f"step-{step:08d}"
        temporary = folder / f".new-{target.name}"
        try:
            begun = self._agree(self._begin, folder, temporary, metric, summary)
            # all disks get the same manifest
            created, (_, metric, summary) = max(created for created, _, _ in begun), begun[0]
            files = self._agree(self._write_part, temporary, step, part)
            named = {name_of(rank): File(*facts) for rank, facts in enumerate(files) if facts}
            manifest = Manifest(step, created, metric, named, summary)
            self._agree(self._publish, temporary, target, manifest)
        finally:
            if self.leads:
                shutil.rmtree(temporary, ignore_errors=True)
        return target, manifest.bytes

    def _agree(self, act: Any, *arguments: Any) -> list[Any]:
        """Run `act` on each rank and return all ranks' results. Raises TrainError on all ranks if it failed on one."""
        try:
            result: tuple[str, Any] = ("", act(*arguments))
        except (TrainError, OSError) as error:
            why = getattr(error, "strerror", None) or error
            result = (f"{self._host} (rank {self._rank}): {why}", None)
        results = exchange.all_of(result, self._group)
        if fault := next((fault for fault, _ in results if fault), ""):
            raise TrainError(fault)
        return [value for _, value in results]

    def _begin(
        self, folder: Path, temporary: Path, metric: float | None, summary: dict[str, Any]
    ) -> tuple[float, float | None, dict[str, Any]]:
        if not self.leads:
            return 0.0, metric, summary
        folder.mkdir(parents=True, exist_ok=True)
        store.clean_up(folder)
        temporary.mkdir()
        return store.now(folder), metric, summary

    def _write_part(self, temporary: Path, step: int, part: dict[str, Any]) -> tuple[str, int, str] | None:
        if not part:
            return None
        file, name = store.HashingFile(), name_of(self._rank)
        try:
            file.save(part, temporary / name)
        except OSError as error:
            (temporary / name).unlink(missing_ok=True)
            raise store.write_error(temporary.parent, step, file.bytes, error) from error
        facts = (file.sha256.hexdigest(), file.bytes, self._host)
        store.read_back(temporary, name, File(*facts))
        return facts

    def _publish(self, temporary: Path, target: Path, manifest: Manifest) -> None:
        if self.leads:
            store.write_synced(temporary / MANIFEST, manifest.render())
            store.sync_folder(temporary)
            store.rename_into_place(temporary, target)
