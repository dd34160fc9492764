"""Run one command over an open connection: stream its input in and its output out, without noise from login scripts."""

from __future__ import annotations

import secrets
import selectors
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from paramiko import Channel, Transport
from paramiko.ssh_exception import ChannelException, SSHException

from ..core.text import in_seconds
from ..door import command, framing
from ..door.faults import Where, fault
from ..door.framing import Stream, Terms, TooMuch, shown, wrapped

_PIECE = 256 * 1024
# What paramiko sends in one packet of OpenSSH's 32 KB. Of a larger piece it would copy the rest for each packet.
_PACKET = 32 * 1024 - 64
# While much is sent. A host's window of 2 MB lasts as long as that at 1 GB/s.
GATHER_S = 0.002
SILENT = "no byte came for {}"


def dead_after_s() -> float:
    """After so many seconds without a byte, a link is dead."""
    return framing.PULSES * framing.PULSE_S


class Feeder(threading.Thread):
    """Writes the input into the channel as fast as the host reads it; `fault` is the input's exception."""

    def __init__(self, channel: Channel, source: bytes | Iterable[bytes]) -> None:
        super().__init__(daemon=True, name="muster-stdin")
        self._channel = channel
        self._source = (source,) if isinstance(source, bytes | bytearray | memoryview) else source
        self.fault: BaseException | None = None
        self.sent, self.sending = 0, False

    def run(self) -> None:
        """Write until the input ends, or the host stops reading."""
        try:
            for chunk in self._source:
                self.sending = True
                if not self._send(memoryview(chunk)):
                    return
                self.sending = False
            self._channel.shutdown_write()
        except (OSError, EOFError, SSHException):
            return  # the command ended without reading everything: its exit code says more
        except BaseException as failed:
            self.fault = failed
            self._channel.close()

    def _send(self, view: memoryview) -> bool:
        most = _PACKET if isinstance(self._channel, Channel) else _PIECE
        for start in range(0, len(view), most):
            piece = view[start : start + most].tobytes()
            while piece:
                sent = self._channel.send(piece)
                if not sent:
                    return False
                self.sent += sent
                piece = piece[sent:]
        return True


def run(
    transport: Transport, where: Where, argv: Sequence[str], source: bytes | Iterable[bytes] | None, terms: Terms
) -> tuple[int, bytes, bytes]:
    """Exit code, output and errors of `argv`. Raises SshFault, or what the input, `tell` or `take` raised."""
    marker = f"muster-{secrets.token_hex(8)}"
    mark = f"{marker}\n".encode()
    most = terms.most if terms.tell else framing.MOST_ANSWER
    streams = Stream(mark, terms.tell, terms.take, terms.most), Stream(mark, terms.tell, most=most)
    channel = begin(transport, where, wrapped(marker, argv))
    try:
        feeder = Feeder(channel, source if source is not None else b"")
        feeder.start()
        if source is not None and terms.moving:
            transport.sock.gather_s = GATHER_S
        # Where we take much, what comes sets the pace, not what we sent first.
        pace = command.Pace(terms.seconds, terms.moving, feeder if source is not None and not terms.take else None)  # type: ignore[arg-type]
        if late := _pump(transport, channel, streams, pace):
            raise fault("slow", where, f"`{shown(argv)}` {late}")
        if feeder.fault:
            raise feeder.fault
        code = channel.recv_exit_status() if channel.exit_status_ready() else -1
        if code < 0:
            raise SSHException(why_no_code(transport))
    except TooMuch as excess:
        raise fault("flood", where, f"{excess} to `{shown(argv)}`") from excess
    except (SSHException, OSError, EOFError) as failed:
        raise fault("lost", where, f" while `{shown(argv)}` ran ({_why(failed)})") from failed
    finally:
        transport.sock.gather_s = 0.0
        end(transport, channel)
    out, err = (stream.end() for stream in streams)
    if not streams[0].started:
        raise framing.no_shell(where, code, out + err)
    return code, out, err


def begin(transport: Transport, where: Where, command: str) -> Channel:
    """A channel in which `command` has begun.

    Raises SshFault: sessions, if the server opens no more of them on this connection; slow, if the host does not
    confirm the begin; lost.
    """
    late = threading.Event()

    def give_up() -> None:
        late.set()
        end(transport, channel)

    try:
        try:
            channel = transport.open_session()
        except ChannelException as refused:
            raise fault("sessions", where, f" ({refused.text or refused.code})") from refused
        # paramiko would wait forever for the host's confirmation.
        patience = threading.Timer(framing.BEGIN_S, give_up)
        patience.daemon = True
        patience.start()
        try:
            channel.exec_command(command)
        finally:
            patience.cancel()
    except (SSHException, OSError, EOFError) as failed:
        if late.is_set():
            raise fault("slow", where, f"it did not begin a command within {in_seconds(framing.BEGIN_S)}") from failed
        raise fault("lost", where, f" ({_why(failed)})") from failed
    transport.sock.channels.add(channel)
    return channel


def end(transport: Transport, channel: Channel) -> None:
    """Stop reading the channel, and tell the host. A second call does nothing."""
    transport.sock.channels.discard(channel)
    with suppress(SSHException, OSError, EOFError):
        if transport.is_active():
            channel.close()


def _pump(transport: Transport, channel: Channel, streams: tuple[Stream, Stream], pace: command.Pace) -> str:
    """Read both streams until the command is over; returns why it is not, when it takes too long."""
    with selectors.DefaultSelector() as ready:
        ready.register(channel.fileno(), selectors.EVENT_READ)
        while True:
            over = channel.closed or (channel.exit_status_ready() and channel.eof_received)
            began = time.monotonic()
            out = channel.recv(_PIECE) if channel.recv_ready() else b""
            err = channel.recv_stderr(_PIECE) if channel.recv_stderr_ready() else b""
            if out:
                streams[0].feed(out)
            if err:
                streams[1].feed(err)
            if over and not (out or err):
                return ""
            if late := pace.late(len(out) + len(err), time.monotonic() - began):
                return late
            if not (out or err):
                ready.select(0.02 if channel.eof_received else pace.pause())
                if time.monotonic() - transport.sock.at > dead_after_s():
                    transport.close()
                    raise SSHException(SILENT.format(in_seconds(dead_after_s())))


def why_no_code(transport: Transport) -> str:
    """Why a command ended without an exit code, as far as this side knows."""
    if transport.is_active():
        return "the host ended it without an exit code, and the connection stands"
    failed = transport.get_exception()
    if isinstance(failed, EOFError):
        return "the other side closed it"
    return _why(failed) if failed else "this side closed it"


def _why(failed: BaseException) -> str:
    return str(failed).strip() or type(failed).__name__
