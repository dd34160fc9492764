"""Run a command on a host in this process's terminal: keys typed here go to it, and its output is shown here.

The command's input is a sequence of frames (node/agent/within.py), so that it can also carry changes of this window's
size. When its input ends, the command knows that this side has stopped listening.
"""

from __future__ import annotations

import os
import secrets
import select
import shutil
import signal
import struct
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

from . import command, framing, mux
from .connection import Master
from .faults import FaultPlace, fault

_PIECE = 1 << 16
_MOST_BEFORE, _LAST_WORD_S = 1 << 20, 5.0
_END_OF_INPUT = b"\x04"  # what a terminal sends for it: Ctrl-D


def converse(master: Master, where: FaultPlace, argv: Sequence[str]) -> int:
    """Run `argv` in this terminal until it ends; return its exit code. Raises SshFault if the connection is lost."""
    marker = f"muster-{secrets.token_hex(8)}"
    channel = command.begin(master, where, framing.shell_line(marker, argv, end=False))
    try:
        with _raw(), _resizing() as resized, suppress(BrokenPipeError):
            _pump(channel, f"{marker}\n".encode(), resized)
        # The command's output may end before its exit code arrives.
        code = channel.code(_LAST_WORD_S)
    finally:
        channel.close()
    if code is None:
        raise fault("lost", where, f" while the terminal was open ({master.why_gone()})")
    return code


def _pump(channel: mux.Channel, marker: bytes, resized: int) -> None:
    """Pass data both ways until the command's output ends. Drop what the login prints before the marker."""
    before: bytes | None = b""
    sources: list[Any] = [channel.out, channel.err, resized, 0]
    channel.input.write_all(_size())
    while channel.out in sources:
        ready = select.select(sources, [], [])[0]
        if resized in ready:
            os.read(resized, _PIECE)
            channel.input.write_all(_size())
        if 0 in ready:
            typed = os.read(0, _PIECE)
            if not typed:
                sources.remove(0)
            typed = typed or _END_OF_INPUT
            channel.input.write_all(b"d" + struct.pack(">I", len(typed)) + typed)
        if channel.err in ready and (shown := channel.err.take(_PIECE)) is not None:
            if not shown:
                sources.remove(channel.err)
            _write(2, shown.rpartition(marker)[2].replace(b"\n", b"\r\n"))
        if channel.out in ready and (shown := channel.out.take(_PIECE)) is not None:
            if not shown:
                sources.remove(channel.out)
            if before is not None:
                before += shown
                shown = before.partition(marker)[2]
                before = None if marker in before else before[-_MOST_BEFORE:]
            _write(1, shown)


def _size() -> bytes:
    columns, lines = shutil.get_terminal_size()
    return b"r" + struct.pack(">HH", lines, columns)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Set this terminal so that every key, even Ctrl-C, goes to the command. Does nothing if stdin is no terminal."""
    if not sys.stdin.isatty():
        yield
        return
    before = termios.tcgetattr(0)
    tty.setraw(0)
    try:
        yield
    finally:
        termios.tcsetattr(0, termios.TCSADRAIN, before)


@contextmanager
def _resizing() -> Iterator[int]:
    """Yield a descriptor that becomes readable whenever the size of the window changes."""
    reading, writing = os.pipe()
    os.set_blocking(writing, False)

    def changed(*_: Any) -> None:
        os.write(writing, b"r")

    before = signal.signal(signal.SIGWINCH, changed)
    try:
        yield reading
    finally:
        signal.signal(signal.SIGWINCH, before)
        os.close(reading)
        os.close(writing)
