"""What goes to a login shell for a command (which folder is its home), and what of the output is its own: bytes, pace.

The limits stand here too. A host that exceeds one is at fault, and Muster stops reading.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from ..core.errors import NOT_FOUND
from ..core.text import amount
from .faults import Kind, SshFault, Where, fault

# Gets the lines of a command as they come.
Tell = Callable[[str], None]
# Where the home of a rented box cannot be written to, the disk that stays is at /workspace; not one of somebody else.
# A host without an engine has one of ours at the end of its PATH (engine/bringing.py).
_PLACES = (
    '[ -w "$HOME" ] || { [ -O /workspace ] && [ -w /workspace ] && HOME=/workspace; }; PATH=$PATH:$HOME/.muster/bin'
)
# A shell's start-up files print before the marker, the command after it. Not `exec`: only the shell gives a command
# that dies of a signal an exit code (128 + the signal's number).
_SCRIPT = f'{_PLACES}; echo "$0"; echo "$0" >&2; "$@"; exit $?'
# And the shell may print something when it exits.
_WITH_END = f'{_PLACES}; echo "$0"; echo "$0" >&2; "$@"; code=$?; echo "$0"; echo "$0" >&2; exit $code'
# Quotes of sh do not keep these from every login shell: tcsh reads newlines and exclamation marks, fish backslashes.
_READ_BY_SHELLS = re.compile(r"[\n!\\']")
# Of each stream of an answer, of what start-up files print before it, of a line (a longer one arrives in pieces), and
# the time until a command begins.
MOST_ANSWER, MOST_BEFORE, LONGEST_LINE, BEGIN_S = 16 << 20, 256 << 10, 1 << 20, 60.0
# A transfer may take days, but must move at least SLOWEST bytes a second over SLOWEST_OVER_S seconds. Once the host has
# all the input, it gets _AFTER_S seconds, and one more for each _AFTER_BYTES_A_SECOND bytes.
SLOWEST, SLOWEST_OVER_S = 8 << 10, 300.0
_AFTER_S, _AFTER_BYTES_A_SECOND = 900.0, 2 << 20
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
# ssh asks for a byte every 10 s; after 30 s without any byte the link is dead.
PULSE_S, PULSES = 10.0, 3


@dataclass(frozen=True)
class Terms:
    """How long a command may take (None: see `moving`), and who consumes its output.

    tell: gets each line of both streams. take: gets the output as bytes. most: the most bytes of each stream; None: no
    limit, for a consumer that can stop at any time. moving: a steady transfer of much data (SLOWEST).
    """

    seconds: float | None = 60.0
    tell: Tell | None = None
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
            # Search only where the marker can begin, so that a slow stream is not searched again and again.
            at = self._data.find(self._marker, max(0, len(self._data) - len(data) - len(self._marker)))
            if at < 0:
                if len(self._data) > MOST_BEFORE:
                    raise TooMuch(f"more than {amount(MOST_BEFORE)} of other output before its answer")
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

    def _tell_lines(self, tell: Tell, data: bytes) -> None:
        self._rest += data
        if b"\n" in data:
            *lines, self._rest = self._rest.split(b"\n")
            for line in lines:
                tell(line.decode(errors="replace").removesuffix("\r"))
        if len(self._rest) > LONGEST_LINE:
            line, self._rest = self._rest, bytearray()
            tell(line.decode(errors="replace"))


def after_s(sent: int) -> float:
    """How long a host may take that has all of the input, which is `sent` bytes."""
    return _AFTER_S + sent / _AFTER_BYTES_A_SECOND


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


def no_shell(where: Where, code: int, output: bytes) -> SshFault:
    """The fault of a host whose login began no command: what it printed says why."""
    text = " ".join(output.decode(errors="replace").split())
    # What the login prints first is a greeting: the reason comes last.
    last_words = text if len(text) <= _MOST_LAST_WORDS else f"... {text[-_MOST_LAST_WORDS:]}"
    detail = f": it ended with code {code} and printed {repr(last_words) if text else 'nothing'}"
    if lacks := _NO_LIBRARY.search(text):
        words = {name.rstrip("23"): value for name, value in lacks.groupdict().items() if value}
        return fault("no-library", where, detail, **words)
    kind: Kind = "forced" if _FORCED.search(text) else "no-sh" if code == NOT_FOUND else "no-shell"
    return fault(kind, where, detail)
