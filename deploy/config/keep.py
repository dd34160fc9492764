"""The paths of --keep: what of a container is kept with the run. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..core.errors import UsageError
from . import values
from .inventory import KEEP


def asked(texts: Sequence[str]) -> tuple[str, ...]:
    """The paths of each --keep, once. Raises UsageError for what a container cannot keep."""
    return tuple(dict.fromkeys(_path(text) for text in texts))


def refuse_nested(keep: Sequence[str], targets: Collection[str]) -> None:
    """Raise UsageError for a kept path that is in another one, or is a mount's too: its folder would not be ours."""
    for path in keep:
        for other in (*(entry for entry in keep if entry != path), *targets):
            if f"{path}/".startswith(f"{other}/"):
                raise UsageError(f"keep {path}: {other} is mounted too", "a mounted folder of the host stays anyway")


def _path(text: str) -> str:
    if path := values.keep(text):
        return path
    raise UsageError(f"--keep {text}: not {KEEP}", "--keep /data/out, and --keep again for another")
