"""Describe the base: its Python, its platform, its packages. This only reads, and needs no network and no cache."""

import platform
from typing import Any

from .tools import installed


def describe() -> dict[str, Any]:
    """The answer to the order `describe`."""
    return {
        "python": platform.python_version(),
        "platform": {"machine": platform.machine(), "libc": [word or "other" for word in platform.libc_ver()]},
        "base": [
            {
                "name": entry.metadata["Name"],
                "version": entry.version,
                "requires": list(entry.requires or ()),
                "extras": entry.metadata.get_all("Provides-Extra") or [],
            }
            for _, entry in sorted(installed().items())
        ],
    }
