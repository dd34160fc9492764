"""Checkpoints that survive a kill at any moment: copied, written behind the training, verified, found again."""

from .snapshot import Snapshot
from .store import Damaged, Found, load, locate, newest_usable, prune, verify, write
from .writer import BackgroundWriter, Written

__all__ = [
    "BackgroundWriter",
    "Damaged",
    "Found",
    "Snapshot",
    "Written",
    "load",
    "locate",
    "newest_usable",
    "prune",
    "verify",
    "write",
]
