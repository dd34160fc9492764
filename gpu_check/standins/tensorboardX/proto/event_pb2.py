"""As far as muster/metrics.py uses it."""

from typing import Any


def Event(**fields: Any) -> dict[str, Any]:
    """The fields."""
    return fields
