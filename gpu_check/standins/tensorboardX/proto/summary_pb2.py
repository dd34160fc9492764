"""The part of this module that muster/metrics.py uses."""

from typing import Any


class Summary:
    """A summary that only keeps its values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @staticmethod
    def Value(**fields: Any) -> dict[str, Any]:
        """The value, as a dict of its fields."""
        return fields
