"""A command on a host in this process's terminal: what is typed goes there, what it writes comes here.

The command's input is a row of frames (trainer/node/within.py), so that a change of this window's size can go along. It
learns from the end of its input that this side has stopped listening.
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
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from paramiko import Channel, Transport
from paramiko.ssh_exception import SSHException

from ..core.text import in_seconds
from ..door import framing
from ..door.faults import Where, fault
from . import command

_PIECE = 1 << 16
_MOST_BEFORE, _LAST_WORD_S = 1 << 20, 5.0
_END_OF_INPUT = b"\x04"  # as a terminal says it: Ctrl-D


def converse(transport: Transport, where: Where, argv: Sequence[str]) -> int:
    """Run `argv` with this terminal until it ends; returns its exit code. Raises SshFault: the connection is lost."""
    marker = f"muster-{secrets.token_hex(8)}"
    channel = command.begin(transport, where, framing.wrapped(marker, argv, end=False))
    try:
        with _raw(), _resizing() as resized:
            _pump(transport, channel, f"{marker}\n".encode(), resized)
        # Its output may end before its code arrives.
        end = time.monotonic() + _LAST_WORD_S
        while not channel.exit_status_ready() and time.monotonic() < end:
            time.sleep(0.01)
        code = channel.recv_exit_status() if channel.exit_status_ready() else -1
    except (SSHException, OSError, EOFError) as failed:
        raise fault("lost", where, f" ({failed})") from failed
    finally:
        command.end(transport, channel)
    if code < 0:
        raise fault("lost", where, f" while the terminal was open ({command.why_no_code(transport)})")
    return code


def _pump(transport: Transport, channel: Channel, marker: bytes, resized: int) -> None:
    """Until the command has ended. What the host writes before the marker is its login's, not the command's.

    A link that answers no question for as long as command.py allows is dead, and is closed.
    """
    before: bytes | None = b""
    typing = [0]
    channel.sendall(_size())
    while True:
        ready = select.select([channel, resized, *typing], [], [], framing.PULSE_S)[0]
        if time.monotonic() - transport.sock.at > command.dead_after_s():
            transport.close()
            raise SSHException(command.SILENT.format(in_seconds(command.dead_after_s())))
        if resized in ready:
            os.read(resized, _PIECE)
            channel.sendall(_size())
        if 0 in ready:
            typed = os.read(0, _PIECE)
            typing = typing if typed else []
            typed = typed or _END_OF_INPUT
            channel.sendall(b"d" + struct.pack(">I", len(typed)) + typed)
        if channel in ready:
            if channel.recv_stderr_ready():
                shown = channel.recv_stderr(_PIECE)
                if marker not in shown:
                    _write(2, shown.replace(b"\n", b"\r\n"))
            elif channel.recv_ready():
                shown = channel.recv(_PIECE)
                if before is not None:
                    before += shown
                    shown = before.partition(marker)[2]
                    before = None if marker in before else before[-_MOST_BEFORE:]
                _write(1, shown)
            elif channel.exit_status_ready() or channel.closed or channel.eof_received:
                return


def _size() -> bytes:
    columns, lines = shutil.get_terminal_size()
    return b"r" + struct.pack(">HH", lines, columns)


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


@contextmanager
def _raw() -> Iterator[None]:
    """Every key goes to the command, Ctrl-C too. Where our input is no terminal, nothing is changed."""
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
    """A descriptor to read from whenever the window has another size."""
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
