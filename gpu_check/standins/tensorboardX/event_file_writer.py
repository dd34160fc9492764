"""As far as muster/metrics.py uses it."""

from typing import Any


class EventsWriter:
    """Writes nothing."""

    def __init__(self, path: str) -> None:
        pass

    def write_event(self, event: Any) -> None:
        """Nothing."""

    def flush(self) -> None:
        """Nothing."""

    def close(self) -> None:
        """Nothing."""
