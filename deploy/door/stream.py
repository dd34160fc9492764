"""Exchange lines or bytes with one running command over an open connection."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Sequence
from contextlib import suppress

from ..core.errors import CommandEnded, DeployError
from ..core.text import amount, in_seconds, last_line
from . import command, framing
from .connection import Master
from .faults import FaultPlace, SshFault, fault

_PIECE, _CODE_S = 1 << 18, 1.0
# An answer is one line. The answer of a probe that called several hundred hosts still fits into MOST_LINE.
MOST_LINE, MOST_LAST_WORDS, TAKE_S = 8 << 20, 64 << 10, 60.0


class _Talk:
    """One running command. When its input ends, it knows that this side has stopped listening."""

    def __init__(
        self, master: Master, where: FaultPlace, argv: Sequence[str], shell: str = "sh", end: bool = True
    ) -> None:
        self._master, self._where, self._shown = master, where, framing.shown(argv)
        self._marker, self._rest = f"muster-{secrets.token_hex(8)}", bytearray()
        self._started = False
        self._channel = command.begin(master, where, framing.shell_line(self._marker, argv, end, shell))

    def close(self) -> None:
        """End the command. A second call does nothing."""
        self._channel.close()

    def _errors(self, end: float) -> bytes:
        """Return what the command writes to its standard error until the time `end`."""
        output = bytearray()
        with suppress(TimeoutError):
            while len(output) < MOST_LAST_WORDS and (piece := self._channel.err.read(_PIECE, end)):
                output += piece
        return bytes(output)

    def _skip_to_marker(self) -> None:
        marker = f"{self._marker}\n".encode()
        if (at := self._rest.find(marker)) >= 0:
            self._started = True
            del self._rest[: at + len(marker)]


class Pipe(_Talk):
    """A command to exchange bytes with. It has the methods of a socket that an HTTP client needs."""

    def __init__(self, master: Master, where: FaultPlace, argv: Sequence[str]) -> None:
        super().__init__(master, where, argv, end=False)
        self._wait_s: float | None = None

    def settimeout(self, seconds: float | None) -> None:
        """Set how many seconds one call of `recv` or `sendall` may take in total; None: no limit."""
        self._wait_s = seconds

    def sendall(self, data: bytes) -> None:
        """Send all of the data. Raises BrokenPipeError if the command no longer reads, TimeoutError."""
        self._channel.input.write_all(data, self._until())

    def recv(self, most: int) -> bytes:
        """Wait for the command's next output and return it; empty at the end. Raises TimeoutError."""
        until = self._until()
        while not self._started:
            piece = self._channel.out.read(_PIECE, until)
            self._rest += piece
            self._skip_to_marker()
            if not piece or len(self._rest) > framing.MOST_BEFORE:
                return b""
        data = bytes(self._rest[:most]) or self._channel.out.read(most, until)
        del self._rest[:most]
        return data

    def shutdown(self, how: int) -> None:
        """Tell the command that no more input comes."""
        if how != socket.SHUT_RD:
            self._channel.input.close()

    def last_words(self, wait_s: float) -> str:
        """Return what the command wrote to its standard error, without what the login printed before it."""
        words = self._errors(time.monotonic() + wait_s)
        return words.partition(f"{self._marker}\n".encode())[2].decode(errors="replace").strip()

    def _until(self) -> float | None:
        return None if self._wait_s is None else time.monotonic() + self._wait_s


class LineStream(_Talk):
    """A command to exchange lines with."""

    def write(self, data: bytes) -> None:
        """Send more input to the command.

        Raises SshFault if the connection is lost or the host accepts no input, DeployError if the command has ended.
        """
        try:
            self._channel.input.write_all(data, time.monotonic() + TAKE_S)
        except TimeoutError:
            raise fault("slow", self._where, f"`{self._shown}` accepted no input for {in_seconds(TAKE_S)}") from None
        except OSError as failed:
            raise self._over() from failed

    def read_line(self, wait_s: float) -> bytes:
        """Wait for the command's next whole line and return it.

        Raises DeployError if the command ends, is silent for `wait_s` seconds, or writes too much.
        """
        end = time.monotonic() + wait_s
        while True:
            if not self._started:
                self._skip_to_marker()
            if self._started and (at := self._rest.find(b"\n")) >= 0:
                line = bytes(self._rest[:at])
                if line.endswith(self._marker.encode()):
                    raise self._over()
                del self._rest[: at + 1]
                return line
            if len(self._rest) > MOST_LINE:
                raise fault("flood", self._where, f"more than {amount(MOST_LINE)} in one line to `{self._shown}`")
            try:
                piece = self._channel.out.read(_PIECE, end)
            except TimeoutError:
                raise self._slow(wait_s) from None
            if not piece:
                raise self._over()
            self._rest += piece

    def end_input(self) -> None:
        """Tell the command that no more input comes. Its output can still be read."""
        self._channel.input.close()

    def _slow(self, wait_s: float) -> SshFault:
        if not self._started:
            why = f"its login shell did not start a command within {in_seconds(wait_s)}: a start-up file may be waiting"
            return fault("unstarted", self._where, why)
        return fault("slow", self._where, f"`{self._shown}` sent nothing for {in_seconds(wait_s)}")

    def _over(self) -> DeployError:
        """Return the error of a command that has ended, with its last line of errors and its exit code."""
        end = time.monotonic() + _CODE_S
        words = [*self._errors(end).split(f"{self._marker}\n".encode()), b""][1]
        code = self._channel.code(max(0.01, end - time.monotonic()))
        if code is None and not self._master.is_open:
            return fault("lost", self._where, f" while `{self._shown}` ran ({self._master.why_gone()})")
        last = last_line(words.decode(errors="replace"))
        return CommandEnded(f"`{self._shown}`", code, last)
