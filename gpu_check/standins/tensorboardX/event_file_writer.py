"""The part of this module that muster/metrics.py uses."""

from typing import Any


class EventsWriter:
    """A writer that writes nothing."""

    def __init__(self, path: str) -> None:
        pass

    def write_event(self, event: Any) -> None:
        """Do nothing."""

    def flush(self) -> None:
        """Do nothing."""

    def close(self) -> None:
        """Do nothing."""
