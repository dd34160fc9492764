"""Checkpoints that survive a kill at any moment: copy the state, write it in the background, verify it, find it."""

from .snapshot import Snapshot
from .store import Checkpoint, Damaged, load, locate, newest_usable, prune, verify, write
from .writer import BackgroundWriter, WriteResult, open_writer

__all__ = [
    "BackgroundWriter",
    "Checkpoint",
    "Damaged",
    "Snapshot",
    "WriteResult",
    "load",
    "locate",
    "newest_usable",
    "open_writer",
    "prune",
    "verify",
    "write",
]
