"""A command that runs in a container: its input, its output, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ..core.errors import DeployError
from .wire import LOST, Stream

# After the end of a command's output, it takes the engine a moment to report the exit code.
_CODE_S = 5.0


class Ended(NamedTuple):
    """How a command in a container ended: exit code, and what it printed."""

    code: int
    out: str
    err: str


class ContainerCommand:
    """A command in a container, and the `frames` of its output."""

    def __init__(
        self,
        stream: Stream,
        frames: Iterator[tuple[int, bytes]],
        code: Callable[[], int | None],
        explain: Callable[[BaseException], DeployError],
    ) -> None:
        self._stream, self._code, self.frames, self.explain = stream, code, frames, explain
        self.set_wait = stream.set_wait

    def write(self, data: bytes) -> None:
        """Write input for the command. Raises the error that the engine's reach makes of a lost connection."""
        try:
            self._stream.write(data)
        except LOST as failed:
            raise self.explain(failed) from failed

    def end_input(self) -> None:
        """End the command's input. The command may have ended already."""
        with suppress(*LOST):
            self._stream.end_input()

    def code(self) -> int:
        """The command's exit code, once its output has ended. Raises DeployError if the command still runs.

        In that case only the connection has ended.
        """
        end = time.monotonic() + _CODE_S
        while (code := self._code()) is None:
            if time.monotonic() > end:
                raise self.explain(EOFError())
            time.sleep(0.05)
        return code
