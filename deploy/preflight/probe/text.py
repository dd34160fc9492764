"""A program that hosts run, as text; the command that starts it; and the protocol class for talking with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

_HERE = Path(__file__).parent
_IMPORT = re.compile(r"^from \.(\w+) import (?:\([^)]*\)|.*)$", re.MULTILINE)


class ProbeStream(Protocol):
    """A connection to one host's probe. Raises DeployError if it is lost or does not answer in time."""

    name: str

    def send(self, question: dict[str, Any]) -> None:
        """Send a question."""

    def read(self, wait_s: float) -> dict[str, Any]:
        """Wait for the next answer and return it."""

    def close(self) -> None:
        """End the probe, whatever it is doing. A second call does nothing."""


def text(program: Path = _HERE / "probe.py") -> bytes:
    """Return a program as one text: the first import of each file from its folder is replaced by that file's text."""
    files = set()

    def included(name: str) -> str:
        files.add(name)
        return _IMPORT.sub(
            lambda match: "" if match[1] in files else included(match[1]), (program.parent / f"{name}.py").read_text()
        )

    return included(program.stem).encode()


def command(size: int) -> list[str]:
    """Return the arguments for Python that read and run a program of `size` bytes from stdin.

    The rest of stdin is left for the program.
    """
    loader = (
        "import os\nb=b''\n"
        f"while len(b)<{size}:b+=os.read(0,{size}-len(b)) or os._exit(9)\n"
        "exec(compile(b,'muster-probe','exec'))"
    )
    return ["-u", "-c", loader]
