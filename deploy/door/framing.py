"""The line sent to a login shell to run a command (it also sets the home), and how to find the command's own output.

The limits on sizes and times are here too. A host that exceeds one is at fault, and Muster stops reading.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.errors import NOT_FOUND
from ..core.text import amount
from .faults import FaultPlace, Kind, SshFault, fault

# Receives each line of a command's output as it comes.
Tell = Callable[[str], None]
# If the home of a rented machine is not writable, its persistent disk is at /workspace; it is used only if this user
# owns it. On a host without a Docker engine, the one that Muster brings (engine/install_bare.py) is last in the PATH.
_HOME_AND_PATH = (
    '[ -w "$HOME" ] || { [ -O /workspace ] && [ -w /workspace ] && HOME=/workspace; }; PATH=$PATH:$HOME/.muster/bin'
)
# A shell's start-up files print before the marker ($0), the command after it. `exec` is not used, because only a shell
# turns a death by signal into an exit code (128 + the signal's number).
_SCRIPT = f'{_HOME_AND_PATH}; echo "$0"; echo "$0" >&2; "$@"; exit $?'
# With a second marker at the end, because the login shell may print something when it exits.
_WITH_END = f'{_HOME_AND_PATH}; echo "$0"; echo "$0" >&2; "$@"; code=$?; echo "$0"; echo "$0" >&2; exit $code'
# Some login shells interpret these even inside sh's quotes: tcsh newlines and exclamation marks, fish backslashes.
_READ_BY_SHELLS = re.compile(r"[\n!\\']")
# The most bytes of each output stream, of what start-up files print before it, and of a line (a longer line arrives in
# pieces); and how many seconds a command may take to begin.
MOST_ANSWER, MOST_BEFORE, LONGEST_LINE, BEGIN_S = 16 << 20, 256 << 10, 1 << 20, 60.0
# A transfer may take days, but must average at least SLOWEST bytes a second over SLOWEST_OVER_S seconds. Once the host
# has all the input, it gets _AFTER_S seconds, and one more second for each _AFTER_BYTES_A_SECOND bytes.
SLOWEST, SLOWEST_OVER_S = 8 << 10, 300.0
_AFTER_S, _AFTER_BYTES_A_SECOND = 900.0, 2 << 20
# How many bytes of the end of a stream are kept if `tell` or `take` consumes it.
_TAIL = 64 * 1024
_MOST_LAST_WORDS = 200
# The name of a program or library in the messages of _NO_LIBRARY.
_PLAIN = r"[\w./+-]{1,200}"
# What sshd prints if it forces a command, or what the forced script typically prints about itself.
_FORCED = re.compile(
    r"(?i)\bforce[- ]?command|\bforced command|only (?:sftp|scp|rsync|git)|sftp connections only|SSH_ORIGINAL"
)
# How the loaders of glibc and musl report that a program cannot start.
_NO_LIBRARY = re.compile(
    rf"(?P<program>{_PLAIN}): error while loading shared libraries: (?P<library>{_PLAIN})"
    rf"|Error loading shared library (?P<library2>{_PLAIN}):.{{0,200}}\(needed by (?P<program2>{_PLAIN})\)"
    rf"|(?P<program3>{_PLAIN}): (?P<library3>{_PLAIN}): version `[^']{{1,60}}' not found"
)
# ssh sends a keepalive every 10 s; after 30 s without any byte from the host, the link counts as dead.
PULSE_S, PULSES = 10.0, 3


@dataclass(frozen=True)
class Limits:
    """How many seconds a command may take (None: see `moving`), and what consumes its output.

    tell: receives each line of both streams. take: receives the output as bytes. most: the most bytes of each stream;
    None: no limit, for a consumer that can stop at any time. moving: a long transfer, limited by its pace (SLOWEST).
    """

    seconds: float | None = 60.0
    tell: Tell | None = None
    take: Callable[[bytes], None] | None = None
    most: int | None = MOST_ANSWER
    moving: bool = False


class TooMuch(Exception):
    """A host sent more than Muster reads; the message names the limit that it exceeded."""


class Stream:
    """One output stream, from the first marker to the second. With `tell` or `take`, only its end is kept.

    `feed` raises TooMuch.
    """

    def __init__(
        self,
        marker: bytes,
        tell: Tell | None = None,
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
            # Search only where a new marker can begin, so that earlier data is not searched again with each piece.
            at = self._data.find(self._marker, max(0, len(self._data) - len(data) - len(self._marker)))
            if at < 0:
                if len(self._data) > MOST_BEFORE:
                    raise TooMuch(f"more than {amount(MOST_BEFORE)} of other output before its answer")
                return
            data = bytes(self._data[at + len(self._marker) :])
            self.started, self._data = True, bytearray()
        self._consume(self._up_to_the_end(data))

    def _up_to_the_end(self, data: bytes) -> bytes:
        """Return what comes before the second marker; hold back what may be its beginning until the next piece."""
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
        """End the stream and return its content; `tell` now receives a last line that has no newline."""
        if self._held:
            self._consume(self._held)
        if self._tell and self._rest:
            self._tell(self._rest.decode(errors="replace"))
        return bytes(self._data[-_TAIL:] if self._tell or self._take else self._data)

    def _tell_lines(self, tell: Tell, data: bytes) -> None:
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                tell(line.decode(errors="replace").removesuffix("\r"))
        if len(self._rest) > LONGEST_LINE:
            line, self._rest = self._rest, bytearray()
            tell(line.decode(errors="replace"))


def limit_after_input_s(sent: int) -> float:
    """Return how many seconds a host may take after it has received the whole input of `sent` bytes."""
    return _AFTER_S + sent / _AFTER_BYTES_A_SECOND


def shell_line(marker: str, argv: Sequence[str], end: bool = True, shell: str = "sh") -> str:
    """Return the `sh -c` line that runs `argv` and prints a line `marker` before the output on both streams.

    `end`: also print the marker after the output. The user's login shell, whichever it is, reads the line first: it is
    one line with nothing special for that shell, and only sh decodes the rest. `shell`: the name or path of sh.
    """
    line = shlex.join([shell, "-c", _WITH_END if end else _SCRIPT, marker, *argv])
    encoded = _READ_BY_SHELLS.sub(lambda match: "\\n" if match[0] == "\n" else f"\\0{ord(match[0]):03o}", line)
    return f"""{shell} -c 'eval "$(printf %b "$1")"' sh '{encoded}'"""


def shown(argv: Sequence[str], most: int = 80) -> str:
    """Return a command as messages show it, without the text of a script: only its name and its arguments."""
    text = " ".join("..." if "\n" in word else shlex.quote(word) for word in argv)
    return text if len(text) <= most else f"{text[: most - 3]}..."


def no_shell(where: FaultPlace, code: int, output: bytes) -> SshFault:
    """Return the fault of a host that did not start the command after the login, judged by what it printed."""
    text = " ".join(output.decode(errors="replace").split())
    # The login prints its greeting first, so the reason is at the end.
    last_words = text if len(text) <= _MOST_LAST_WORDS else f"... {text[-_MOST_LAST_WORDS:]}"
    detail = f": it ended with code {code} and printed {repr(last_words) if text else 'nothing'}"
    if lacks := _NO_LIBRARY.search(text):
        words = {name.rstrip("23"): value for name, value in lacks.groupdict().items() if value}
        return fault("no-library", where, detail, **words)
    kind: Kind = "forced" if _FORCED.search(text) else "no-sh" if code == NOT_FOUND else "no-shell"
    return fault(kind, where, detail)
