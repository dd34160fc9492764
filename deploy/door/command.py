"""Run one command over an open connection: send its input and read its output, without the noise of login scripts."""

from __future__ import annotations

import secrets
import select
import selectors
import threading
import time
from collections.abc import Iterable, Sequence
from contextlib import suppress

from ..core.errors import from_os_error
from ..core.text import amount, in_seconds
from . import framing, mux
from .connection import Master
from .faults import FaultPlace, fault
from .framing import Limits, Stream, TooMuch, shell_line, shown

_PIECE = 256 * 1024
# How long to wait for the exit code once the connection reports that the command has ended.
_CODE_S = 5.0


class Feeder(threading.Thread):
    """Writes the input into the channel as fast as the host reads it; `fault` is what the input raised, if anything."""

    def __init__(self, channel: mux.Channel, source: bytes | Iterable[bytes]) -> None:
        """`source`: the whole input, or its pieces."""
        super().__init__(daemon=True, name="muster-stdin")
        self._input = channel.input
        self._source = (source,) if isinstance(source, bytes | bytearray | memoryview) else source
        self.fault: BaseException | None = None
        self.sent, self.sending = 0, False

    def run(self) -> None:
        """Write until the input ends, or the host stops reading."""
        try:
            for piece in self._source:
                self.sending = True
                view = memoryview(piece)
                while view:
                    sent = self._input.write(view)
                    self.sent += sent
                    view = view[sent:]
                self.sending = False
        except BrokenPipeError:
            pass  # the command ended without reading everything: its exit code tells more
        except BaseException as failed:
            self.fault = failed
        self._input.close()


class Pace:
    """Decides whether a command takes too long: by the clock, or by how slowly its output or its input moves."""

    def __init__(self, seconds: float | None, moving: bool, feeder: Feeder | None) -> None:
        self._seconds, self._moving, self._feeder = seconds, moving, feeder
        self._deadline = None if seconds is None else time.monotonic() + seconds
        self._moved, self._before, self._since = 0, 0, time.monotonic()
        self._looked = self._since

    def why_late(self, received: int, ours_s: float) -> str:
        """Return why the command takes too long, or an empty text.

        `received`: the bytes that came in this step. `ours_s`: the seconds that this side spent on them, which do not
        count as the host's silence or slowness (but a fixed time limit includes them).
        """
        now = time.monotonic()
        waits_for_us = self._feeder is not None and not self._feeder.sending
        self._since += now - self._looked if waits_for_us else ours_s
        self._looked, self._moved = now, self._moved + received
        if self._moving and self._feeder and not self._feeder.is_alive() and self._deadline is None:
            self._seconds = framing.limit_after_input_s(self._feeder.sent)
            self._deadline = now + self._seconds
        if self._deadline is not None:
            return "" if now < self._deadline else f"did not end within {in_seconds(self._seconds or 0.0)}"
        moved = self._feeder.sent if self._feeder else self._moved
        if not self._moving or now - self._since < framing.SLOWEST_OVER_S:
            return ""
        if moved - self._before < framing.SLOWEST * framing.SLOWEST_OVER_S:
            return f"moved {amount(moved - self._before)} in {in_seconds(framing.SLOWEST_OVER_S)}"
        self._before, self._since = moved, now
        return ""

    def pause(self) -> float:
        """Return how many seconds to wait for more data."""
        return 0.5 if self._deadline is None else min(0.5, max(0.01, self._deadline - time.monotonic()))


def run(
    master: Master, where: FaultPlace, argv: Sequence[str], source: bytes | Iterable[bytes] | None, limits: Limits
) -> tuple[int, bytes, bytes]:
    """Run `argv`; return its exit code, output and errors.

    Raises SshFault, or whatever the input, `tell` or `take` raised.
    """
    marker = f"muster-{secrets.token_hex(8)}"
    mark = f"{marker}\n".encode()
    most = limits.most if limits.tell else framing.MOST_ANSWER
    streams = Stream(mark, limits.tell, limits.take, limits.most), Stream(mark, limits.tell, most=most)
    channel = begin(master, where, shell_line(marker, argv))
    try:
        feeder = _feed(channel, source, limits.moving)
        # If the command has much output (`take`), its output sets the pace, not the input that was sent first.
        pace = Pace(limits.seconds, limits.moving, None if limits.take else feeder)
        code, late = _pump(channel, streams, pace, feeder)
        if feeder and feeder.fault:
            raise feeder.fault
    except TooMuch as excess:
        raise fault("flood", where, f"{excess} to `{shown(argv)}`") from excess
    finally:
        channel.close()
    if late:
        raise fault("slow", where, f"`{shown(argv)}` {late}" if streams[0].started else late)
    if code is None:
        raise fault("lost", where, f" while `{shown(argv)}` ran ({master.why_gone()})")
    out, err = (stream.end() for stream in streams)
    if not streams[0].started:
        raise framing.no_shell(where, code, out + err)
    return code, out, err


def begin(master: Master, where: FaultPlace, line: str) -> mux.Channel:
    """Start a line in the host's login shell; return the channel to it.

    Raises SshFault: sessions, if the server opens no more of them on this connection; slow, if the host does not
    answer; lost.
    """
    try:
        return master.start(line)
    except mux.Refused as refused:
        raise fault("sessions", where, f" ({refused})") from refused
    except TimeoutError as late:
        words = f"it did not start a command within {in_seconds(framing.BEGIN_S)}"
        raise fault("slow", where, words) from late
    except (OSError, EOFError) as gone:
        if isinstance(gone, OSError) and (ours := from_os_error(gone)):
            raise ours from gone
        raise fault("lost", where, f" ({master.why_gone()})") from gone


def _feed(channel: mux.Channel, source: bytes | Iterable[bytes] | None, moving: bool) -> Feeder | None:
    """Start to write the input. A short input is written here, without a thread: it fits into the empty pipe."""
    if isinstance(source, bytes) and len(source) <= select.PIPE_BUF and not moving:
        with suppress(BrokenPipeError):
            channel.input.write_all(source)
        source = None
    if source is None:
        channel.input.close()
        return None
    feeder = Feeder(channel, source)
    feeder.start()
    return feeder


def _pump(
    channel: mux.Channel, streams: tuple[Stream, Stream], pace: Pace, feeder: Feeder | None
) -> tuple[int | None, str]:
    """Read until the command ends; return its exit code (None if there is none), and why it took too long, if it did.

    Also returns if the input fails.
    """
    began, code = time.monotonic(), None
    with selectors.DefaultSelector() as ready:
        for end, stream in zip((channel.out, channel.err), streams, strict=True):
            ready.register(end, selectors.EVENT_READ, (end, stream))
        ready.register(channel, selectors.EVENT_READ)
        while ready.get_map() and not (feeder and feeder.fault):
            chosen = ready.select(pace.pause())
            received, looked = 0, time.monotonic()
            for key, _ in chosen:
                if key.fileobj is channel:
                    code = channel.code(_CODE_S)
                    ready.unregister(channel)
                    continue
                end, stream = key.data
                if piece := end.take(_PIECE):
                    received += len(piece)
                    stream.feed(piece)
                elif piece is not None:
                    ready.unregister(end)
            now = time.monotonic()
            if not ready.get_map():
                break
            if not streams[0].started and now - began > framing.BEGIN_S:
                return None, f"it did not start a command within {in_seconds(framing.BEGIN_S)}"
            if late := pace.why_late(received, now - looked):
                return None, late if streams[0].started else f"the command that Muster sent {late}"
    return code, ""
