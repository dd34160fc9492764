"""Run one command over an open connection: its input streamed in, its output as it comes, nobody else's noise.

A room of the door to SSH (session.py).
"""

from __future__ import annotations

import secrets
import selectors
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence

from paramiko import Channel, Transport
from paramiko.ssh_exception import SSHException

from deploy.ssh_faults import Where, fault

# What a shell's start-up files print comes before the marker; what the command prints, after it. Not `exec`: a command
# that dies of a signal has an exit code only through the shell (128 + the signal's number).
_SCRIPT = 'echo "$0"; echo "$0" >&2; "$@"; exit $?'
_PIECE = 256 * 1024
# A longer line is told in pieces.
_LONGEST_LINE = 64 * 1024
# Older than this many seconds without a byte, with one asked for every 10 s: the link is dead.
PULSE_S, DEAD_AFTER_S = 10.0, 30.0


class Stream:
    """One output stream, from behind the marker on; tells whole lines; keeps all, or the last `keep` bytes."""

    def __init__(self, marker: bytes, tell: Callable[[str], None] | None, keep: int | None) -> None:
        self._marker, self._tell, self._keep = marker, tell, keep
        self._data, self._rest = bytearray(), b""
        self.started = False

    def feed(self, data: bytes) -> None:
        """More of the stream."""
        self._data += data
        if not self.started:
            _, found, after = bytes(self._data).partition(self._marker)
            if not found:
                return
            self.started, self._data, data = True, bytearray(after), after
        if self._tell:
            *lines, self._rest = (self._rest + data).split(b"\n")
            if len(self._rest) > _LONGEST_LINE:
                lines, self._rest = [*lines, self._rest], b""
            for line in lines:
                self._tell(line.decode(errors="replace").removesuffix("\r"))
        if self._keep is not None and len(self._data) > 2 * self._keep:
            del self._data[: -self._keep]

    def end(self) -> bytes:
        """What the stream said; a last line without its newline is told now."""
        if self._tell and self._rest:
            self._tell(self._rest.decode(errors="replace"))
        return bytes(self._data if self._keep is None else self._data[-self._keep :])


class Feeder(threading.Thread):
    """Writes the input into the channel as fast as the other side takes it; `fault` is what the input raised."""

    def __init__(self, channel: Channel, source: bytes | Iterable[bytes]) -> None:
        super().__init__(daemon=True, name="muster-stdin")
        self._channel = channel
        self._source = (source,) if isinstance(source, bytes | bytearray | memoryview) else source
        self.fault: BaseException | None = None

    def run(self) -> None:
        """Until the input ends, or the other side wants no more."""
        try:
            for chunk in self._source:
                if not self._send(memoryview(chunk)):
                    return
            self._channel.shutdown_write()
        except (OSError, EOFError, SSHException):
            return  # the command ended without reading on: its exit code tells more
        except BaseException as failed:
            self.fault = failed
            self._channel.close()

    def _send(self, view: memoryview) -> bool:
        for start in range(0, len(view), _PIECE):
            piece = view[start : start + _PIECE].tobytes()
            while piece:
                sent = self._channel.send(piece)
                if not sent:
                    return False
                piece = piece[sent:]
        return True


def run(
    transport: Transport,
    where: Where,
    argv: Sequence[str],
    source: bytes | Iterable[bytes] | None,
    timeout_s: float | None,
    tell: Callable[[str], None] | None,
    keep: int | None,
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of `argv`. Raises SshFault, or what the input raised."""
    marker = f"muster-{secrets.token_hex(8)}"
    streams = [Stream(f"{marker}\n".encode(), tell, keep) for _ in range(2)]
    command = wrapped(marker, argv)
    try:
        channel = transport.open_session()
    except (SSHException, OSError, EOFError) as failed:
        raise fault("lost", where, f" ({_why(failed)})") from failed
    try:
        channel.exec_command(command)
        feeder = Feeder(channel, source if source is not None else b"")
        feeder.start()
        deadline = None if timeout_s is None else time.monotonic() + timeout_s
        if not _pump(transport, channel, streams, deadline):
            raise fault("slow", where, f"`{shown(argv)}` did not end within {timeout_s:g} s")
        if feeder.fault:
            raise feeder.fault
        code = channel.recv_exit_status() if channel.exit_status_ready() else -1
        if code < 0:
            raise fault("lost", where, f" while `{shown(argv)}` ran")
    except (SSHException, OSError, EOFError) as failed:
        raise fault("lost", where, f" while `{shown(argv)}` ran ({_why(failed)})") from failed
    finally:
        if transport.is_active():
            channel.close()
    out, err = (stream.end() for stream in streams)
    if not streams[0].started:
        _no_shell(where, code, out + err)
    return code, out, err


def wrapped(marker: str, argv: Sequence[str]) -> str:
    """The command line for `argv`: what it says begins behind the line `marker`, on both streams."""
    return f"exec sh -c {shlex.join([_SCRIPT, marker, *argv])}"


def shown(argv: Sequence[str], most: int = 80) -> str:
    """A command for a message."""
    text = shlex.join(argv)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _pump(transport: Transport, channel: Channel, streams: list[Stream], deadline: float | None) -> bool:
    """Read both streams until the command is over: True; or until the deadline: False."""
    with selectors.DefaultSelector() as ready:
        ready.register(channel.fileno(), selectors.EVENT_READ)
        while True:
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            while channel.recv_ready():
                streams[0].feed(channel.recv(_PIECE))
            while channel.recv_stderr_ready():
                streams[1].feed(channel.recv_stderr(_PIECE))
            if over:
                return True
            left = 0.5 if deadline is None else min(0.5, deadline - time.monotonic())
            if left <= 0:
                return False
            ready.select(0.02 if channel.eof_received else left)
            if time.monotonic() - transport.sock.at > DEAD_AFTER_S:
                transport.close()


def _no_shell(where: Where, code: int, said: bytes) -> None:
    text = " ".join(said.decode(errors="replace").split())
    detail = f": it said {text[:200]!r}" if text else f": it ended with code {code} and said nothing"
    raise fault("no-sh" if code == 127 else "no-shell", where, detail)


def _why(failed: BaseException) -> str:
    return str(failed).strip() or type(failed).__name__
