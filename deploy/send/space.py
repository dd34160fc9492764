"""Check that what Muster sends fits on a host's disk."""

from ..core.errors import DeployError
from ..core.text import amount

ROOM = "on that host: df -h ~; `muster clean` shows what Muster keeps there"
_SLACK = 64 << 20  # bytes that must stay free


def refuse_full(place: str, what: str, need: int, free: int | None, hint: str = ROOM) -> None:
    """Raise DeployError if `what` (`need` bytes) does not fit in `place` on a host; `free`: bytes (None: unknown)."""
    need += _SLACK
    if free is not None and free < need:
        words = f"not enough disk space in {place}: {what} needs {amount(need)}, {amount(free)} are free"
        raise DeployError(words, hint)
