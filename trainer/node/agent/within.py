"""`python -m muster.trainer.node within [--terminal] -- COMMAND ARGS`: runs a command in a node, in the work folder.

`docker exec` does not end the command that it started when its client goes away. So this process starts the command and
watches its own standard input: when that ends, because the connection to this host is lost or the user has left, it
ends the command too. With `--terminal`, the command gets a terminal here, and the standard input is a sequence of
frames: `d`, a length, and that many bytes that the user typed; or `r`, and the lines and columns of the user's window.
Standard library only.
"""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from muster.errors import NOT_FOUND, SIGNALLED

from ..files import work

_LEAVE_SECONDS, _LOOK_SECONDS = 5.0, 0.2
_PIECE = 1 << 16
_LENGTH, _SIZE = struct.Struct(">I"), struct.Struct(">HH")
_SHELLS = ("/bin/bash", "/bin/sh")


def main() -> int:
    """Run the command; returns its exit code, or 128 + n if signal n ended it."""
    at = sys.argv.index("--")
    terminal, command = "--terminal" in sys.argv[1:at], sys.argv[at + 1 :]
    _enter()
    return _in_terminal(command or _shell()) if terminal else _plain(command)


def _enter() -> None:
    """Change to the folder in which the run's script works, and set HOME; other variables are the container's."""
    folder = Path(os.environ.get("MUSTER_RUN_DIR", "/nowhere"))
    with suppress(OSError):
        os.chdir(folder / work.WORK)
        os.environ["HOME"] = str(folder / work.HOME)


def _shell() -> list[str]:
    return [next((shell for shell in _SHELLS if os.access(shell, os.X_OK)), _SHELLS[-1])]


def _plain(command: Sequence[str]) -> int:
    try:
        child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    except OSError as fault:
        print(f"error: {command[0]}: {fault.strerror}", file=sys.stderr)
        return NOT_FOUND
    while True:
        with suppress(subprocess.TimeoutExpired):
            return _code(child.wait(_LOOK_SECONDS))
        if select.select([0], [], [], 0)[0] and not os.read(0, _PIECE):
            return _end(child)


def _end(child: subprocess.Popen[bytes]) -> int:
    """Ask the command and everything that it started to end, and kill what still runs then."""
    end = time.monotonic() + _LEAVE_SECONDS
    with suppress(ProcessLookupError):  # no process of the group is left
        os.killpg(child.pid, signal.SIGTERM)
        while time.monotonic() < end:
            child.poll()
            os.killpg(child.pid, 0)
            time.sleep(0.02)
        os.killpg(child.pid, signal.SIGKILL)
    return _code(child.wait())


def _in_terminal(command: Sequence[str]) -> int:
    pid, terminal = pty.fork()
    if not pid:
        signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup leaves it ignored: then closing the terminal ends nothing
        try:
            os.execvp(command[0], list(command))
        except OSError as fault:
            os.write(2, f"error: {command[0]}: {fault.strerror}\n".encode())
        os._exit(NOT_FOUND)
    os.set_blocking(terminal, False)
    frames = typed = b""
    while True:
        # A program may print before it reads more input, so a large pasted text must not block reading its output.
        ready, takes, _ = select.select([0, terminal], [terminal] if typed else [], [])
        if takes:
            with suppress(OSError):
                typed = typed[os.write(terminal, typed) :]
        if terminal in ready:
            try:
                shown = os.read(terminal, _PIECE)
            except OSError:  # the last process of the terminal has ended
                shown = b""
            if not shown:
                break
            _write(1, shown)
        if 0 in ready:
            piece = os.read(0, _PIECE)
            if not piece:
                break
            frames, more = _obey(frames + piece, terminal)
            typed += more
    os.close(terminal)  # the kernel then hangs up the terminal, which ends the programs in it
    return _reap(pid)


def _obey(frames: bytes, terminal: int) -> tuple[bytes, bytes]:
    """Obey the complete frames; returns the remaining bytes, and what the user typed."""
    typed = b""
    while frames:
        if frames[:1] == b"r" and len(frames) > _SIZE.size:
            lines, columns = _SIZE.unpack_from(frames, 1)
            fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))
            frames = frames[1 + _SIZE.size :]
        elif frames[:1] == b"d" and len(frames) > _LENGTH.size:
            (length,) = _LENGTH.unpack_from(frames, 1)
            start = 1 + _LENGTH.size
            if len(frames) < start + length:
                break
            typed += frames[start : start + length]
            frames = frames[start + length :]
        else:
            break
    return frames, typed


def _write(descriptor: int, data: bytes) -> None:
    while data:
        data = data[os.write(descriptor, data) :]


def _reap(pid: int) -> int:
    end = time.monotonic() + _LEAVE_SECONDS
    while time.monotonic() < end:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return _code(os.waitstatus_to_exitcode(status))
        time.sleep(0.02)
    os.killpg(pid, signal.SIGKILL)
    return _code(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))


def _code(code: int) -> int:
    return SIGNALLED - code if code < 0 else code


if __name__ == "__main__":
    sys.exit(main())
