"""Ask OpenSSH what the user's SSH settings mean: `ssh -G`, one process per host, with limits on time and output.

OpenSSH evaluates Include, Match, CanonicalizeHostname and the rest. It may run commands of the user's own `Match exec`,
so every name must be checked before it comes here.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from typing import NamedTuple

from ..config import values as values
from ..core.errors import UsageError

# Keyword in lower case -> its values, one a line, as ssh prints them.
Answer = dict[str, tuple[str, ...]]
# A Match exec or a name server may take its time.
_LONGEST_S = 30.0
_MOST_BYTES = 1 << 20


class Place(NamedTuple):
    """A server to ask about. None leaves a choice to the settings; `jumps` as ProxyJump writes them."""

    name: str
    user: str | None = None
    port: int | None = None
    jumps: str | None = None


class OpenSSH:
    """OpenSSH's client, `program`, with the settings file it reads (None: the usual ones)."""

    def __init__(self, program: str, file: str | None) -> None:
        self._program, self._file = program, file
        self._source = f"its SSH settings ({file})" if file else "its SSH settings"

    def defaults(self) -> Answer:
        """OpenSSH's defaults, without any settings file."""
        return self._read("muster", ["-F", "none", "--", "muster"])

    def ask(self, place: Place) -> Answer:
        """The settings for a place. Raises UsageError with ssh's own message if ssh refuses the settings file."""
        check(place)
        return self._read(place.name, [*self._options(place), "--", place.name])

    def client(self, place: Place) -> tuple[str, ...]:
        """`ssh` with the options that lead to a place; its name follows."""
        return (self._program, *self._options(place))

    def _options(self, place: Place) -> list[str]:
        line = ["-F", self._file] if self._file else []
        for option, value in (("-l", place.user), ("-p", place.port), ("-J", place.jumps)):
            line += [option, str(value)] if value is not None else []
        return line

    def _read(self, name: str, options: list[str]) -> Answer:
        code, out, err = _run([self._program, "-G", *options])
        words = (
            "ssh -G took too long or printed too much"
            if code is None
            else (err.strip() or f"code {code}").splitlines()[0]
        )
        settings: dict[str, list[str]] = {}
        for line in out.split("\n")[:-1]:
            keyword, _, value = line.partition(" ")
            settings.setdefault(keyword.lower(), []).append(value)
        if code != 0 or not {"hostname", "user", "port"} <= settings.keys():
            raise UsageError(
                f"{name}: {self._source}: {words}", f"`ssh -G {name}` shows the same error; correct the settings"
            )
        return {keyword: tuple(lines) for keyword, lines in settings.items()}


def check(place: Place) -> None:
    """Raise UsageError for a name that must not reach ssh or a shell."""
    good = values.host(place.name) and (place.user is None or values.user(place.user))
    if not good or not all(map(values.destination, (place.jumps or "a").split(","))):
        shown = ", ".join(repr(word) for word in (place.name, place.user, place.jumps) if word is not None)
        raise UsageError(
            f"{shown}: not a valid name of a host, a user or a jump host", "letters, digits, dots and dashes only"
        )


def _run(line: list[str]) -> tuple[int | None, str, str]:
    """The command's exit code, output and errors; None for the code if it took too long or printed too much."""
    with subprocess.Popen(
        line, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        assert process.stderr
        clock = threading.Timer(_LONGEST_S, _kill, (process.pid,))
        clock.daemon = True
        clock.start()
        try:
            # One after the other: the errors of a settings file fit into the pipe, or the clock ends it.
            out = process.stdout.read(_MOST_BYTES + 1)
            err = process.stderr.read(_MOST_BYTES)
            if len(out) > _MOST_BYTES:
                _kill(process.pid)
            process.wait()
        except BaseException:
            _kill(process.pid)
            raise
        finally:
            clock.cancel()
    code = None if process.returncode == -signal.SIGKILL else process.returncode
    return code, out.decode(errors="surrogateescape"), err.decode(errors="replace")


def _kill(group: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(group, signal.SIGKILL)
