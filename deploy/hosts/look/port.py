"""`muster port` and `muster tensorboard`: forward a port of a run's container to this machine's loopback address.

The run's container shares its host's network, so a tunnel to the host's loopback reaches it. The forwarding ends with
the command.
"""

from __future__ import annotations

import importlib.util
import re
import select
import socket
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from ...core.errors import DONE, DeployError, UsageError
from ...door.session import Session
from ...engine import reach
from ...engine.wire import read_lines
from ...host import commands
from ...job.load import known_cluster
from ...job.options import Options
from ...report.console import Console
from ..act.within import Place, places

_PIECE, _MOST_AT_ONCE = 1 << 16, 64
_LOOK_EVERY_S, _BEGIN_S = 5.0, 60.0
_URL = re.compile(r"https?://\S{1,300}?:([0-9]{1,5})(/\S*)?")


def port(options: Options, asked: str, console: Console) -> int:
    """Forward a port of a rank's host (default: rank 0's) to this machine, until Ctrl-C or the run's end.

    `asked`: `6006`, or `7000:6006` for another local number. Raises UsageError, DeployError.
    """
    here, remote = numbers(asked)
    with (
        places(known_cluster(options), options.run, options.rank or "0") as (place, *_),
        listen(here, f"muster port {{}}:{remote}") as listening,
    ):
        return _serve(place, listening, remote, "", console)


def tensorboard(options: Options, console: Console) -> int:
    """Start TensorBoard in the container of a rank (default: rank 0's), and forward its port here until Ctrl-C."""
    here, _ = numbers(options.port or "6006")
    with (
        places(known_cluster(options), options.run, options.rank or "0") as (place, *_),
        listen(here, "muster tensorboard --port {}") as listening,
        _running(place, console) as (remote, path),
    ):
        return _serve(place, listening, remote, path, console)


def listen(here: int, other: str) -> socket.socket:
    """Listen on a port of the local loopback. Raises UsageError; `other`: the command, with {} for another port."""
    try:
        return socket.create_server(("127.0.0.1", here))
    except OSError as fault:
        hint = f"another one here: {other.format(10_000 + here % 50_000)}"
        raise UsageError(f"port {here} of this machine: {fault.strerror}", hint) from fault


def numbers(asked: str) -> tuple[int, int]:
    """The local port and the port on the rank's host, from `6006` or `7000:6006`. Raises UsageError."""
    match = re.fullmatch(r"(?:([0-9]{1,5}):)?([0-9]{1,5})", asked)
    here, remote = (int(match[1] or match[2]), int(match[2])) if match else (0, 0)
    if not (0 < here < 65536 and 0 < remote < 65536):
        raise UsageError(
            f"{asked or 'no port'}: not a port", "a number up to 65535, such as 6006; 7000:6006 is 7000 here"
        )
    return here, remote


@contextmanager
def _running(place: Place, console: Console) -> Iterator[tuple[int, str]]:
    """Run TensorBoard next to the ranks, on the whole run folder; yields its port and path there. It ends with us."""
    words = ("-m", "tensorboard.main", "--logdir", commands.RUN_IN_CONTAINER, "--host", "127.0.0.1", "--port", "0")
    command = commands.node_program("within", "--", *commands.image_python(*words))
    with reach.on_host(place.session).run_inside(place.container, command) as inside:
        inside.set_wait(_BEGIN_S)
        lines, last, seen = read_lines(inside.frames), "", None
        with console.waiting("starting TensorBoard"):
            while not seen and (line := next(lines, None)) is not None:
                last, seen = line, _URL.search(line)
        if not seen:
            raise DeployError(
                f"{place.session.name}: TensorBoard did not start: {last or 'it printed nothing'}",
                "is it among the run's packages? if not, use it here: muster fetch, then tensorboard --logdir runs/ID",
            )
        inside.set_wait(None)
        threading.Thread(target=_drain, args=(lines,), daemon=True, name="muster-tensorboard").start()
        yield int(seen[1]), seen[2] or "/"


def _drain(lines: Iterator[str]) -> None:
    """Read and drop everything TensorBoard prints from now on, so that it never blocks on a full pipe."""
    with suppress(DeployError, OSError, ValueError):
        deque(lines, maxlen=0)


def _serve(place: Place, listening: socket.socket, remote: int, path: str, console: Console) -> int:
    """Accept local connections until Ctrl-C, or until the container has ended. Raises DeployError."""
    open_now, here = threading.Semaphore(_MOST_AT_ONCE), listening.getsockname()[1]
    console.line(f"http://127.0.0.1:{here}{path}", {"kind": "port", "port": here, "host": place.session.name})
    console.note(f"port {remote} of {place.container} on {place.session.name}; press Ctrl-C to end this")
    warned = []

    def tell(words: str) -> None:
        if words not in warned:
            warned.append(words)
            console.warn(words)

    looked = time.monotonic()
    with suppress(KeyboardInterrupt):
        while True:
            due = looked + _LOOK_EVERY_S - time.monotonic()
            if due > 0 and select.select([listening], [], [], due)[0]:
                connection, _ = listening.accept()
                if not open_now.acquire(blocking=False):
                    connection.close()
                    continue
                work = (place.session, connection, remote, tell, open_now.release)
                threading.Thread(target=_carry, args=work, daemon=True).start()
            elif due <= 0:
                seen = reach.on_host(place.session).inspect(place.container)
                if not (seen and seen.runs):
                    console.note("the run's container has ended")
                    break
                looked = time.monotonic()
    return DONE


def _carry(
    session: Session, connection: socket.socket, remote: int, tell: Callable[[str], None], done: Callable[[], None]
) -> None:
    """Copy bytes both ways between one connection and the remote port, until both directions have ended."""
    try:
        with connection:
            channel = session.tunnel(remote)
            try:
                ends: dict[Any, Any] = {connection: channel, channel: connection}
                while ends:
                    for source in select.select(list(ends), [], [])[0]:
                        data = source.recv(_PIECE)
                        target = connection if source is channel else channel
                        if data:
                            target.sendall(data)
                            continue
                        del ends[source]
                        with suppress(OSError):
                            target.shutdown(socket.SHUT_WR)
            finally:
                channel.close()
    except DeployError as fault:
        tell(fault.message)
    except (OSError, EOFError):
        pass  # one side is gone; the other sees the end of its connection
    finally:
        done()


def tensorboard_here(folder: str, asked: str) -> int:
    """Run TensorBoard on a run's local folder until Ctrl-C. Raises DeployError if it is not installed here."""
    here, _ = numbers(asked or "6006")
    if not importlib.util.find_spec("tensorboard"):
        raise DeployError(
            f"{sys.executable} has no TensorBoard", f"pip install tensorboard; then: tensorboard --logdir {folder}"
        )
    listen(here, "muster tensorboard --port {}").close()
    line = [
        sys.executable,
        "-P",
        "-m",
        "tensorboard.main",
        "--logdir",
        folder,
        "--host",
        "127.0.0.1",
        "--port",
        str(here),
    ]
    try:
        return subprocess.run(line, check=False).returncode
    except KeyboardInterrupt:
        return DONE
