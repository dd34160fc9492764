"""The watcher of this process at its start: whether this is its rank's first process, and which modules to wrap."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from . import failure
from .doors import patches
from .place import Place
from .watcher import Watcher


def begin() -> dict[str, Callable[[ModuleType], None]]:
    """Watch from now on. Returns, by a module's name, what to do to the module once it is loaded."""
    place = Place()
    # A process that multiprocessing started belongs to a DataLoader, or becomes a rank's own once it trains.
    child = "--multiprocessing-fork" in sys.orig_argv
    first = not child and place.claim(f"first-{place.local}")
    if first:
        failure.arm(place.outcome, place.local)
    return patches(Watcher(place, first))
