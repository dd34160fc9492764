"""Starts the watcher in a process, which is its rank's first one or a child such as a DataLoader's worker."""

from __future__ import annotations

import os
import sys
from types import ModuleType

from . import end_note, hooks, world_notes
from .place import Place
from .raised import UncaughtErrors
from .steps.torch_hooks import patches
from .steps.watcher import Watcher


def watch() -> None:
    """Watch this process and the processes that it forks, from now on."""
    place = Place()
    # A process that multiprocessing has started is a DataLoader's worker, or is watched as a rank once it trains.
    child = "--multiprocessing-fork" in sys.orig_argv
    first = not child and place.claim(f"first-{place.local}")
    raised = UncaughtErrors()
    world_notes.ends.append(end_note.End(place.outcome, place.life, raised))
    many: dict[str, list[hooks.Patch]] = {"torch._dynamo.trace_rules": [_leave_out]}
    for some in (world_notes.patches(), patches(Watcher(place, first, raised))):
        for name, patch in some.items():
            many.setdefault(name, []).append(patch)
    hooks.patch_on_load(many)


def _leave_out(module: ModuleType) -> None:
    """Make torch.compile skip the files of this folder, as it skips torch's own, and not report them."""
    module.SKIP_DIRS.append(os.path.dirname(os.path.abspath(__file__)) + os.sep)
    module._recompile_re()
