"""What the base has: its Python, its platform, its packages. It reads them, and needs no network and no cache."""

import platform
import re
import sys
from pathlib import Path
from typing import Any

from .tools import installed


def describe() -> dict[str, Any]:
    """The answer to the order `describe`."""
    return {
        "python": platform.python_version(),
        "platform": {"machine": platform.machine(), "libc": _libc()},
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


def _libc() -> list[str]:
    """The C library that this Python runs on, and its version."""
    kind, version = platform.libc_ver()
    if kind:
        return [kind, version]
    # musl has no version that a program can ask for; its loader says it in a file's name alone.
    content = Path(sys.executable).resolve().read_bytes()[: 64 << 10]
    return ["musl", "1.2"] if re.search(rb"ld-musl-\w+\.so", content) else [sys.platform, ""]
