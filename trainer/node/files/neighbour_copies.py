"""Copies of neighbour nodes' files, for runs that continue without a lost node; also when this node last saved.

In most scripts only rank 0 writes checkpoints. So during training each node copies the files of the nodes before it in
the epoch, of as many nodes as may be lost. Only a file that is no longer being written is copied, and a copy is moved
into place only after all files that came with it are complete. Standard library only.
"""

from __future__ import annotations

import os
import re
import shutil
import tarfile
import threading
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from ..membership.link import Link, LinkLost
from . import work
from .missing_files import OWN, SENT, Entry
from .share import FileServer, receive

# A file that has not changed for this long is complete. File times are in whole seconds.
_QUIET_S = 2.0
# A file that was being written at this many looks in a row is complete while no process has it open.
_RESTLESS_LOOKS = 4
_LOOK_S, _LOOKS_SHARE, _COPIES_SHARE = 1.0, 0.05, 0.25
# Files that grow with the steps: no script continues from a large one, and they are never quiet.
_GROWS = re.compile(r"(?i).*\.(?:log|txt|csv|jsonl|out|err|tmp|part)|(?:.*/)?events\.out\.tfevents.*")
# A file that matches these names but is this small contains the name of a checkpoint: Megatron's
# latest_checkpointed_iteration.txt.
_POINTER_BYTES = 256
_STAGE = ".copies"
# In place of an origin: the file is rewritten all the time.
_RESTLESS = "!"


@dataclass(frozen=True)
class Source:
    """A node whose files this node copies.

    Its address for files, the time of its newest file, and the current epoch.
    """

    name: str
    where: str
    saved: float
    epoch: int


def _lasting(files: Mapping[str, Entry]) -> dict[str, Entry]:
    return {
        path: entry
        for path, entry in files.items()
        if entry.origin != SENT and (entry.size <= _POINTER_BYTES or not _GROWS.fullmatch(path))
    }


def settled(files: Mapping[str, Entry], now: float) -> dict[str, Entry]:
    """The files of a node from which a script can continue and that are no longer being written. Pure.

    The files of a folder belong together: while one of them is being written, all of them are left out. Files directly
    in the working folder or the home folder are judged one by one.
    """
    own = _lasting(files)
    fresh = {path for path, entry in own.items() if now - entry.time < _QUIET_S}
    busy = {str(PurePosixPath(path).parent) for path in fresh if not _GROWS.fullmatch(path)} - {work.WORK, work.HOME}
    return {
        path: entry for path, entry in own.items() if path not in fresh and str(PurePosixPath(path).parent) not in busy
    }


class Whole:
    """Decides from look to look which files are complete.

    Most stay quiet for a while, some are written all the time.
    """

    def __init__(self, being_written: Callable[[], Collection[str]]) -> None:
        self._being_written = being_written
        self._looks: dict[str, int] = {}

    def look(self, files: Mapping[str, Entry], now: float) -> tuple[dict[str, Entry], set[str]]:
        """The files that are complete, and those among them that are complete only at this moment."""
        own = _lasting(files)
        quiet = settled(files, now)
        self._looks = {path: self._looks.get(path, 0) + 1 for path in own.keys() - quiet.keys()}
        restless = {path for path, looks in self._looks.items() if looks >= _RESTLESS_LOOKS}
        if restless:
            restless -= set(self._being_written())
        return {**quiet, **{path: own[path] for path in restless}}, restless


def being_written(folder: Path) -> set[str]:
    """The files below a folder that processes have open for writing, by their paths in it, if /proc shows it."""
    paths, start = set[str](), f"{folder.resolve()}/"
    for number in Path("/proc").glob("[0-9]*/fd/*"):
        with suppress(OSError, ValueError, IndexError):
            path = str(number.readlink())
            if path.startswith(start):
                flags = (number.parents[1] / "fdinfo" / number.name).read_text().partition("flags:")[2].split()[0]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    paths.add(path.removeprefix(start))
    return paths


class NeighbourCopies:
    """Watches this node's files from now on; `saved` is the time of the newest file.

    `key`: the shared key of the run's nodes. With an `address`, this node has its own disk: then other nodes copy from
    it, and it copies from `sources`. `runs`: the epoch whose ranks run here, 0 while there are none.
    """

    def __init__(
        self, folder: Path, key: str, address: str, sources: Callable[[], Sequence[Source]], runs: Callable[[], int]
    ) -> None:
        self._folder, self._key, self._sources, self._runs = folder, key, sources, runs
        self._server = FileServer(address, key, folder) if address else None
        self._have: dict[str, float] = {}
        self._whole = Whole(lambda: being_written(folder))
        self._closed = threading.Event()
        self.saved = 0.0
        threading.Thread(target=self._follow, daemon=True, name="muster-copies").start()

    @property
    def where(self) -> str:
        """The address from which other nodes get the files; empty if all nodes share a disk."""
        return self._server.where if self._server else ""

    def close(self) -> None:
        """Stop looking for files, and stop serving them."""
        self._closed.set()
        if self._server:
            self._server.close()

    def _follow(self) -> None:
        pause = _LOOK_S
        while not self._closed.wait(pause):
            computed = time.thread_time()
            with suppress(OSError):
                self._look()
            looks, began = time.thread_time() - computed, time.monotonic()
            for source in self._sources() if self._server else ():
                with suppress(LinkLost, OSError, tarfile.TarError, EOFError, LookupError, ValueError, TypeError):
                    self._copy(source)
            pause = max(_LOOK_S, looks / _LOOKS_SHARE, (time.monotonic() - began) * (1 / _COPIES_SHARE - 1))

    def _look(self) -> None:
        whole, restless = self._whole.look(work.listing(self._folder, (*work.TOPS, work.KEEP)).files, time.time())
        if self._server:
            tops = tuple(f"{top}/" for top in work.TOPS)
            own = {path: entry for path, entry in whole.items() if entry.origin == OWN and path.startswith(tops)}
            self._server.files = {
                path: Entry(*entry[:2], _RESTLESS if path in restless else OWN) for path, entry in own.items()
            }
        self.saved = max((float(entry.time) for entry in whole.values()), default=0.0)

    def _copy(self, source: Source) -> None:
        """Copy the source's newer files. Raises LinkLost, or the error of a disk or of a malformed answer."""
        if source.saved <= self._have.get(source.name, 0.0) or not source.where or source.epoch != self._runs():
            return
        theirs, here = self._ask(source), work.listing(self._folder).files
        wanted = {path: entry for path, entry in theirs.items() if _lacks(here.get(path), entry)}
        stage = self._folder / _STAGE
        shutil.rmtree(stage, ignore_errors=True)
        try:
            if wanted:
                self._fetch(source, wanted, stage)
                now = self._ask(source)
                if any(now.get(path) != entry for path, entry in wanted.items() if entry.origin != _RESTLESS):
                    return  # a file was written meanwhile
            with work.locked(self._folder):
                if self._runs() != source.epoch:  # the next start has chosen its files
                    return
                work.move_in(stage, self._folder, source.name, wanted)
        finally:
            shutil.rmtree(stage, ignore_errors=True)
        self._have[source.name] = source.saved

    def _ask(self, source: Source) -> dict[str, Entry]:
        with Link.to(source.where, self._key) as link:
            link.send({"list": True})
            listed = link.receive()["files"]
            return {str(path): Entry(int(row[0]), int(row[1]), str(row[2])) for path, row in listed.items()}

    def _fetch(self, source: Source, wanted: Mapping[str, Entry], stage: Path) -> None:
        sizes = {path: entry.size for path, entry in wanted.items()}
        with Link.to(source.where, self._key) as link:
            if not all(receive(link, source.name, sizes, stage)):
                raise LinkLost(f"{source.name} sent files that cannot be kept together")


def _lacks(here: Entry | None, theirs: Entry) -> bool:
    """Whether a file of another node should be copied: a file that the script wrote here, or that was sent, stays."""
    return here is None or (here.origin not in (OWN, SENT) and here[:2] != theirs[:2])
