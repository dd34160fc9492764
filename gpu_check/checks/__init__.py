"""The checks, one a file: TITLE, LIMIT_S (the most seconds it may take), and run(bench), which yields findings."""

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
    """A check by its name, or a module by its dotted one. No check imports torch when it is imported."""
    return importlib.import_module(name if "." in name else f"{__name__}.{name}")
