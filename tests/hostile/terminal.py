"""A person at a terminal: runs a command there and types answers to its questions."""

from __future__ import annotations

import os
import pty
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

QUESTION = "[y/N] "


class Seen(NamedTuple):
    """How a command ended, and what the terminal showed."""

    code: int
    screen: str

    @property
    def questions(self) -> int:
        """How often the command asked."""
        return self.screen.count(QUESTION)


def at_terminal(
    line: Sequence[str],
    folder: Path,
    environment: Mapping[str, str],
    answers: Sequence[str] = (),
    meanwhile: Callable[[], None] = lambda: None,
    within_s: float = 60,
) -> Seen:
    """Run a command at a terminal and type one answer per question; `meanwhile` is called before the first answer.

    A question without an answer gets end-of-file (Ctrl-D).
    """
    above, below = pty.openpty()
    process = subprocess.Popen(line, cwd=folder, env={**environment, "TERM": "xterm"}, stdin=below, stdout=below,
                               stderr=below, start_new_session=True)  # fmt: skip
    os.close(below)
    screen, asked, until = b"", 0, time.monotonic() + within_s
    while time.monotonic() < until:
        if select.select([above], [], [], 0.2)[0]:
            with suppress(OSError):
                if piece := os.read(above, 1 << 16):
                    screen += piece
                    if screen.count(QUESTION.encode()) > asked:
                        if not asked:
                            meanwhile()
                        os.write(above, f"{answers[asked]}\n".encode() if asked < len(answers) else b"\x04")
                        asked += 1
                    continue
            break  # the command has closed its end of the terminal
    process.wait(max(1.0, until - time.monotonic()))
    os.close(above)
    return Seen(process.returncode, screen.decode(errors="replace").replace("\r\n", "\n"))
