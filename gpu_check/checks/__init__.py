"""The checks, one per file: TITLE, LIMIT_S (its time limit in seconds), and run(bench), which yields findings."""

from __future__ import annotations

import importlib
from types import ModuleType

# The longest check comes last: it gets the remaining time.
ORDER = (
    "facts",
    "preflight",
    "hosts",
    "kill",
    "link",
    "forked",
    "telemetry",
    "several",
    "checkpoint",
    "precision",
    "memory",
    "watching",
    "mesh",
    "throughput",
    "orphans",
)


def module(name: str) -> ModuleType:
    """Import a check by its name, or a module by its dotted name. Importing a check does not import torch."""
    return importlib.import_module(name if "." in name else f"{__name__}.{name}")
