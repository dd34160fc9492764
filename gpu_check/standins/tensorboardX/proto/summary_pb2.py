"""As far as muster/metrics.py uses it."""

from typing import Any


class Summary:
    """The values."""

    def __init__(self, value: Any) -> None:
        self.value = value

    @staticmethod
    def Value(**fields: Any) -> dict[str, Any]:
        """The fields."""
        return fields
