"""Send a large folder to one host from a process of its own: encryption for several hosts would wait for one Python.

The process logs in to the host once more, by the same settings and with the same checks (ssh/), and runs the command
that takes the stream. `python -m deploy.image.sending` is such a process: two lines of JSON come in, the host with its
command and the folder; lines go out: `"open"` after the login, then bytes sent, then how it ended. It ends at once when
its input ends, because then this side has stopped listening.
"""

from __future__ import annotations

import json
import os
import selectors
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from ..config.inventory import Host
from ..core.errors import FAILED, DeployError
from ..ssh.session import Done, Session, open_all
from .folder_stream import FolderStream

_ROOT = Path(__file__).resolve().parents[__name__.count(".")] if __name__ != "__main__" else Path()
_LOOK_S = 0.5
# More processes than processors make nothing faster: what finds none free is sent by this process.
_FREE = threading.BoundedSemaphore(os.cpu_count() or 1)
Tell = Callable[[int], None]


class Send(Protocol):
    """Gives a command on a host the stream as its input; returns how it ended."""

    def __call__(self, session: Session, argv: Sequence[str], stream: FolderStream, tell: Tell) -> Done:
        """`tell` gets the bytes so far. Raises DeployError, say for a file that has changed."""


def from_here(session: Session, argv: Sequence[str], stream: FolderStream, tell: Tell) -> Done:
    """Send over the session's own connection."""
    return session.run(argv, input=stream.read(tell), moving=True, check=False)


def apart(session: Session, argv: Sequence[str], stream: FolderStream, tell: Tell) -> Done:
    """Send from another process, or from here if it cannot log in (a key may want a touch for each login)."""
    if not _FREE.acquire(blocking=False):
        return from_here(session, argv, stream, tell)
    try:
        return _by_another(session, argv, stream, tell) or from_here(session, argv, stream, tell)
    finally:
        _FREE.release()


def _by_another(session: Session, argv: Sequence[str], stream: FolderStream, tell: Tell) -> Done | None:
    """How the command ended; None if the process could not begin it."""
    environment = {**os.environ, "PYTHONPATH": str(_ROOT)}
    command = [sys.executable, "-P", "-m", __name__]
    pipe = subprocess.PIPE
    # A Ctrl-C here is ours to answer.
    process = subprocess.Popen(command, stdin=pipe, stdout=pipe, env=environment, start_new_session=True)
    try:
        assert process.stdin
        try:
            process.stdin.write(_order(session.host, argv) + stream.text + b"\n")
            process.stdin.flush()
        except BrokenPipeError:
            return None
        return _listen(session, process, tell)
    finally:
        process.kill()
        process.communicate()


def _listen(session: Session, process: subprocess.Popen[bytes], tell: Tell) -> Done | None:
    """Read what it says until it has ended, or our own connection has: that one holds the host's lock."""
    assert process.stdout
    rest, begun = b"", False
    with selectors.DefaultSelector() as ready:
        ready.register(process.stdout, selectors.EVENT_READ)
        while session.is_open:
            if not ready.select(_LOOK_S):
                continue
            piece = os.read(process.stdout.fileno(), 1 << 16)
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                message = json.loads(line)
                if message == "open":
                    begun = True
                elif isinstance(message, int):
                    tell(message)
                elif "fault" in message:
                    if not begun:
                        return None
                    raise DeployError(*message["fault"])
                else:
                    return Done(*message["done"])
            if not piece:
                if not begun:
                    return None
                raise DeployError(f"{session.host.name}: the process that sent the folder was killed", "push again")
    raise DeployError(f"{session.host.name}: the connection was lost while the folder was sent", "push again")


def _order(host: Host, argv: Sequence[str]) -> bytes:
    """The host as SSH needs it, and the command, as a line."""
    return json.dumps([[host.name, host.address, host.port, host.user, host.gateway], list(argv)]).encode() + b"\n"


def main() -> None:
    """Send what standard input names."""
    (host, argv), stream = json.loads(sys.stdin.buffer.readline()), FolderStream.parse(sys.stdin.buffer.readline())
    threading.Thread(target=_end_with_input, daemon=True).start()
    try:
        _say(_sent(Host(*host), argv, stream))
    except DeployError as fault:
        _say({"fault": [fault.message, fault.hint, fault.code]})


def _sent(host: Host, argv: Sequence[str], stream: FolderStream) -> dict[str, Any]:
    with open_all([host], ask_home=False) as opened:
        (session,) = opened.all().values()
        _say("open")
        return {"done": from_here(session, argv, stream, _say)}


def _say(word: object) -> None:
    print(json.dumps(word), flush=True)


def _end_with_input() -> None:
    sys.stdin.buffer.read()
    os._exit(FAILED)


if __name__ == "__main__":
    main()
