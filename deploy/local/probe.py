"""Run a probe as a process on this machine, in the namespace that its command enters."""

from __future__ import annotations

import json
import selectors
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

from ..core import fields
from ..core.errors import CommandEnded, DeployError
from ..core.text import in_seconds, last_line
from ..preflight.probe import text as program_text

LAST_WORDS = 2000


class LocalProbe:
    """One probe. `argv` starts a Python (`["ip", "netns", "exec", "a", "python3"]`), which then reads the probe."""

    def __init__(
        self, name: str, argv: Sequence[str], env: Mapping[str, str] | None = None, program: bytes | None = None
    ) -> None:
        self.name = name
        program = program or program_text.text()
        self._process = subprocess.Popen(
            [*argv, *program_text.command(len(program))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=None if env is None else dict(env),
        )
        self._rest = b""
        self._write(program)

    def send(self, question: dict[str, Any]) -> None:
        """Send a question. Raises DeployError if the probe has ended."""
        self._write(json.dumps(question).encode() + b"\n")

    def read(self, wait_s: float) -> dict[str, Any]:
        """The next answer. Raises DeployError if none comes within `wait_s` seconds, or if the probe ends."""
        out, end = self._process.stdout, time.monotonic() + wait_s
        assert out is not None
        with selectors.DefaultSelector() as ready:
            ready.register(out, selectors.EVENT_READ)
            while b"\n" not in self._rest:
                left = end - time.monotonic()
                if left <= 0 or not ready.select(left):
                    raise DeployError(f"{self.name}: the probe did not answer within {in_seconds(wait_s)}")
                piece = out.read1(1 << 20)  # type: ignore[attr-defined]
                if not piece:
                    raise self._end_fault()
                self._rest += piece
        line, _, self._rest = self._rest.partition(b"\n")
        return fields.json_object(line, "the probe's answer")

    def close(self) -> None:
        """End the probe by closing its input; kill it if it does not end then."""
        if self._process.stdin and not self._process.stdin.closed:
            with suppress(OSError):
                self._process.stdin.close()
        try:
            self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        for stream in (self._process.stdout, self._process.stderr):
            if stream:
                stream.close()

    def _write(self, data: bytes) -> None:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(data)
            self._process.stdin.flush()
        except OSError:
            raise self._end_fault() from None

    def _end_fault(self) -> DeployError:
        stderr = b""
        if self._process.stderr:
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(1.0)
            stderr = self._process.stderr.read(LAST_WORDS) if self._process.poll() is not None else b""
        words = last_line(stderr.decode(errors="replace"))
        return CommandEnded(f"{self.name}: the probe", self._process.poll(), words)

    def __enter__(self) -> LocalProbe:
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, at: TracebackType | None) -> None:
        self.close()
