"""The programs that hosts run, as text, the command that starts it, and the form of a conversation with it."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Protocol

_HERE = Path(__file__).parent
_IMPORT = re.compile(r"^from \.(\w+) import (?:\([^)]*\)|.*)$", re.MULTILINE)


class ProbeStream(Protocol):
    """One host's probe. Raises DeployError when it is lost or does not answer in time."""

    name: str

    def send(self, question: dict[str, Any]) -> None:
        """Ask something."""

    def read(self, wait_s: float) -> dict[str, Any]:
        """The next answer."""

    def close(self) -> None:
        """End it, whatever it does. Calling it again does nothing."""


def text(program: Path = _HERE / "probe.py") -> bytes:
    """A program in one piece: each file that it imports from its folder stands in the place of its first import."""
    files = set()

    def included(name: str) -> str:
        files.add(name)
        return _IMPORT.sub(
            lambda match: "" if match[1] in files else included(match[1]), (program.parent / f"{name}.py").read_text()
        )

    return included(program.stem).encode()


def command(size: int) -> list[str]:
    """What follows the name of the Python: it reads `size` bytes of program, and leaves the rest to the program."""
    loader = (
        "import os\nb=b''\n"
        f"while len(b)<{size}:b+=os.read(0,{size}-len(b)) or os._exit(9)\n"
        "exec(compile(b,'muster-probe','exec'))"
    )
    return ["-u", "-c", loader]
