"""A command in a container: its input, its output, and how it ended."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import NamedTuple

from ..core.errors import DeployError
from .wire import LOST, Stream

# An engine knows the code of a command somewhat later than the end of its output.
_CODE_S = 5.0


class Ended(NamedTuple):
    """How a command in a container ended: exit code, and what it printed."""

    code: int
    out: str
    err: str


class Inside:
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
        """Give it input. Raises what the engine's reach explains."""
        try:
            self._stream.write(data)
        except LOST as failed:
            raise self.explain(failed) from failed

    def end_input(self) -> None:
        """Tell it that no more input comes. It may have ended already."""
        with suppress(*LOST):
            self._stream.end_input()

    def code(self) -> int:
        """The code with which it ended, once its output has. Raises DeployError if it goes on: the connection ended."""
        end = time.monotonic() + _CODE_S
        while (code := self._code()) is None:
            if time.monotonic() > end:
                raise self.explain(EOFError())
            time.sleep(0.05)
        return code
