"""The watcher of this process, as it starts: whether it is its rank's first, and what of torch it looks into."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType

from .doors import patches
from .place import Place
from .watcher import Watcher


def begin() -> dict[str, Callable[[ModuleType], None]]:
    """Watch from now on. Returns by module's name what has to be done to it once it is loaded."""
    place = Place()
    # A process that multiprocessing started is a DataLoader's, or becomes a rank's own once it trains.
    child = "--multiprocessing-fork" in sys.orig_argv
    return patches(Watcher(place, first=not child and place.claim(f"first-{place.local}")))
