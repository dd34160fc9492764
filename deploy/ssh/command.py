"""Run one command over an open connection: stream its input in and its output out, without noise from login scripts."""

from __future__ import annotations

import re
import secrets
import selectors
import shlex
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass

from paramiko import Channel, Transport
from paramiko.ssh_exception import ChannelException, SSHException

from ..core.errors import NOT_FOUND
from ..core.text import amount, in_seconds
from .faults import Kind, Where, fault

# A shell's start-up files print before the marker, the command after it. Not `exec`: only the shell gives a command
# that dies of a signal an exit code (128 + the signal's number).
_SCRIPT = 'echo "$0"; echo "$0" >&2; "$@"; exit $?'
# And the shell may print something when it exits.
_WITH_END = 'echo "$0"; echo "$0" >&2; "$@"; code=$?; echo "$0"; echo "$0" >&2; exit $code'
# Quotes of sh do not keep these from every login shell: tcsh reads newlines and exclamation marks, fish backslashes.
_READ_BY_SHELLS = re.compile(r"[\n!\\']")
_PIECE = 256 * 1024
# What paramiko sends in one packet of OpenSSH's 32 KB. Of a larger piece it would copy the rest for each packet.
_PACKET = 32 * 1024 - 64
# A host that exceeds one of these is at fault, and we stop reading. They limit each stream of an answer, the output of
# start-up files before it, a line (a longer one arrives in pieces), and the time until the host begins.
MOST_ANSWER, MOST_BEFORE, LONGEST_LINE, BEGIN_S = 16 << 20, 256 << 10, 1 << 20, 30.0
# A transfer may take days, but must move at least SLOWEST bytes a second over SLOWEST_OVER_S seconds. Once the host has
# all the input, it gets AFTER_S seconds, and one more for each AFTER_BYTES_A_SECOND bytes.
SLOWEST, SLOWEST_OVER_S = 8 << 10, 300.0
AFTER_S, AFTER_BYTES_A_SECOND = 900.0, 2 << 20
# How much we keep of the end of a stream that `tell` or `take` consumes.
_TAIL = 64 * 1024
_MOST_LAST_WORDS = 200
# How the loaders of glibc and of musl say that a program cannot start.
_PLAIN = r"[\w./+-]{1,200}"
# What sshd, or the script that it starts instead of a command, says of itself.
_FORCED = re.compile(
    r"(?i)\bforce[- ]?command|\bforced command|only (?:sftp|scp|rsync|git)|sftp connections only|SSH_ORIGINAL"
)
_NO_LIBRARY = re.compile(
    rf"(?P<program>{_PLAIN}): error while loading shared libraries: (?P<library>{_PLAIN})"
    rf"|Error loading shared library (?P<library2>{_PLAIN}):.{{0,200}}\(needed by (?P<program2>{_PLAIN})\)"
    rf"|(?P<program3>{_PLAIN}): (?P<library3>{_PLAIN}): version `[^']{{1,60}}' not found"
)
# We ask for a byte every 10 s; after this many seconds without any byte the link is dead.
PULSE_S, DEAD_AFTER_S = 10.0, 30.0
# While much is sent. A host's window of 2 MB lasts as long as that at 1 GB/s.
GATHER_S = 0.002
SILENT = "no byte came for {}"


@dataclass(frozen=True)
class Terms:
    """How long a command may take (None: see `moving`), and who consumes its output.

    tell: gets each line of both streams. take: gets the output as bytes. most: the most bytes of each stream; None: no
    limit, for a consumer that can stop at any time. moving: a steady transfer of much data (SLOWEST).
    """

    seconds: float | None = 60.0
    tell: Callable[[str], None] | None = None
    take: Callable[[bytes], None] | None = None
    most: int | None = MOST_ANSWER
    moving: bool = False


class TooMuch(Exception):
    """A host sent more than we read: the message says more of what."""


class Stream:
    """One output stream between two markers: kept whole, or consumed and only its end kept. feed raises TooMuch."""

    def __init__(
        self,
        marker: bytes,
        tell: Callable[[str], None] | None = None,
        take: Callable[[bytes], None] | None = None,
        most: int | None = MOST_ANSWER,
    ) -> None:
        self._marker, self._tell, self._take, self._most = marker, tell, take, most
        self._data, self._rest, self._held = bytearray(), bytearray(), b""
        self._size, self.started, self._over = 0, False, False

    def feed(self, data: bytes) -> None:
        """Take the next piece of the stream."""
        if not self.started:
            self._data += data
            # Search only where the marker can begin, so that a slow stream is not searched again and again.
            at = self._data.find(self._marker, max(0, len(self._data) - len(data) - len(self._marker)))
            if at < 0:
                if len(self._data) > MOST_BEFORE:
                    raise TooMuch(f"more than {amount(MOST_BEFORE)} of other things before its answer")
                return
            data = bytes(self._data[at + len(self._marker) :])
            self.started, self._data = True, bytearray()
        self._consume(self._up_to_the_end(data))

    def _up_to_the_end(self, data: bytes) -> bytes:
        """What comes before the second marker; what may be its beginning waits for the next piece."""
        data = b"" if self._over else self._held + data
        at = data.find(self._marker)
        self._over = self._over or at >= 0
        longest = 0 if self._over else min(len(data), len(self._marker) - 1)
        size = next((size for size in range(longest, 0, -1) if data.endswith(self._marker[:size])), 0)
        end = at if at >= 0 else len(data) - size
        self._held = data[end:] if at < 0 else b""
        return data[:end]

    def _consume(self, data: bytes) -> None:
        self._data += data
        self._size += len(data)
        if self._most is not None and self._size > self._most:
            raise TooMuch(f"more than {amount(self._most)}")
        if self._take:
            self._take(data)
        if self._tell:
            self._tell_lines(self._tell, data)
        if (self._tell or self._take) and len(self._data) > 2 * _TAIL:
            del self._data[:-_TAIL]

    def end(self) -> bytes:
        """The stream's content; `tell` gets a last line without its newline now."""
        if self._held:
            self._consume(self._held)
        if self._tell and self._rest:
            self._tell(self._rest.decode(errors="replace"))
        return bytes(self._data[-_TAIL:] if self._tell or self._take else self._data)

    def _tell_lines(self, tell: Callable[[str], None], data: bytes) -> None:
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                tell(line.decode(errors="replace").removesuffix("\r"))
        if len(self._rest) > LONGEST_LINE:
            line, self._rest = self._rest, bytearray()
            tell(line.decode(errors="replace"))


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
    most = terms.most if terms.tell else MOST_ANSWER
    streams = Stream(mark, terms.tell, terms.take, terms.most), Stream(mark, terms.tell, most=most)
    channel = begin(transport, where, wrapped(marker, argv))
    try:
        feeder = Feeder(channel, source if source is not None else b"")
        feeder.start()
        if source is not None and terms.moving:
            transport.sock.gather_s = GATHER_S
        # Where we take much, what comes sets the pace, not what we sent first.
        pace = Pace(terms.seconds, terms.moving, feeder if source is not None and not terms.take else None)
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
        _no_shell(where, code, out + err)
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
        patience = threading.Timer(BEGIN_S, give_up)
        patience.daemon = True
        patience.start()
        try:
            channel.exec_command(command)
        finally:
            patience.cancel()
    except (SSHException, OSError, EOFError) as failed:
        if late.is_set():
            raise fault("slow", where, f"it did not begin a command within {in_seconds(BEGIN_S)}") from failed
        raise fault("lost", where, f" ({_why(failed)})") from failed
    transport.sock.channels.add(channel)
    return channel


def wrapped(marker: str, argv: Sequence[str], end: bool = True, shell: str = "sh") -> str:
    """The `sh -c` line for `argv`: on both streams, its output begins after a line `marker`, and ends before the next.

    The user's login shell reads it first, whatever that is: it sees one line, in which sh alone decodes the rest.
    `shell`: by which name or path it calls sh.
    """
    line = shlex.join([shell, "-c", _WITH_END if end else _SCRIPT, marker, *argv])
    encoded = _READ_BY_SHELLS.sub(lambda match: "\\n" if match[0] == "\n" else f"\\0{ord(match[0]):03o}", line)
    return f"""{shell} -c 'eval "$(printf %b "$1")"' sh '{encoded}'"""


def shown(argv: Sequence[str], most: int = 80) -> str:
    """A command as a message shows it: for a script, its name and its arguments."""
    text = " ".join("..." if "\n" in word else shlex.quote(word) for word in argv)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def end(transport: Transport, channel: Channel) -> None:
    """Stop reading the channel, and tell the host. A second call does nothing."""
    transport.sock.channels.discard(channel)
    with suppress(SSHException, OSError, EOFError):
        if transport.is_active():
            channel.close()


class Pace:
    """Decides whether a command takes too long: by the clock, or by how slowly its output or its input moves."""

    def __init__(self, seconds: float | None, moving: bool, feeder: Feeder | None) -> None:
        self._seconds, self._moving, self._feeder = seconds, moving, feeder
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._moved, self._before, self._since = 0, 0, time.monotonic()
        self._looked = self._since

    def late(self, received: int, ours_s: float) -> str:
        """Why it is too late, or nothing. `heard` bytes have come now; what we did with them took `ours_s` seconds."""
        now = time.monotonic()
        waits_for_us = self._feeder is not None and not self._feeder.sending
        self._since += now - self._looked if waits_for_us else ours_s
        self._looked, self._moved = now, self._moved + received
        if self._moving and self._feeder and not self._feeder.is_alive() and self._deadline is None:
            self._seconds = AFTER_S + self._feeder.sent / AFTER_BYTES_A_SECOND
            self._deadline = now + self._seconds
        if self._deadline is not None:
            return "" if now < self._deadline else f"did not end within {in_seconds(self._seconds or 0.0)}"
        moved = self._feeder.sent if self._feeder else self._moved
        if not self._moving or now - self._since < SLOWEST_OVER_S:
            return ""
        if moved - self._before < SLOWEST * SLOWEST_OVER_S:
            return f"moved {amount(moved - self._before)} in {in_seconds(SLOWEST_OVER_S)}"
        self._before, self._since = moved, now
        return ""

    def pause(self) -> float:
        """Seconds to wait for more."""
        return 0.5 if self._deadline is None else min(0.5, max(0.01, self._deadline - time.monotonic()))


def _pump(transport: Transport, channel: Channel, streams: tuple[Stream, Stream], pace: Pace) -> str:
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
                if time.monotonic() - transport.sock.at > DEAD_AFTER_S:
                    transport.close()
                    raise SSHException(SILENT.format(in_seconds(DEAD_AFTER_S)))


def _no_shell(where: Where, code: int, output: bytes) -> None:
    text = " ".join(output.decode(errors="replace").split())
    # What the login prints first is a greeting: the reason comes last.
    last_words = text if len(text) <= _MOST_LAST_WORDS else f"... {text[-_MOST_LAST_WORDS:]}"
    detail = f": it ended with code {code} and said {repr(last_words) if text else 'nothing'}"
    if lacks := _NO_LIBRARY.search(text):
        words = {name.rstrip("23"): value for name, value in lacks.groupdict().items() if value}
        raise fault("no-library", where, detail, **words)
    kind: Kind = "forced" if _FORCED.search(text) else "no-sh" if code == NOT_FOUND else "no-shell"
    raise fault(kind, where, detail)


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
