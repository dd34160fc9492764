"""Reaches an engine: by its socket here (and how long Muster waits for it), a host's over SSH, or through a program.

A script finds the socket of a host's `docker`. An SSH server that forbids forwarding (AllowStreamLocalForwarding no)
closes each forwarded connection immediately; one request over the first connection shows this. Then Muster uses
`docker system dial-stdio`, as it does if the login reaches Docker by sudo, by a context, or on another machine.
"""

from __future__ import annotations

import http.client
import os
import socket
import subprocess
import threading
import time
from functools import cache

from ..causes import docker_faults
from ..core import fields
from ..core.errors import DeployError, EngineLost
from ..core.scripts import Scripts
from ..core.text import in_seconds
from ..door.session import Session
from ..door.stream import Pipe
from ..job.options import FLAG
from .engine import Engine
from .wire import CALL_S, Connection, Excess, Wire

LOOK_S = 1.0  # an engine on this machine that takes longer to report its version is useless
_LAST_WORDS_S, _LOST_S, _UNIX = 1.0, 0.3, "unix://"
_ENGINE_VARIABLES = ("DOCKER_HOST", "DOCKER_CONTEXT")  # they choose an engine; the first one that is set wins
_DIAL = ("docker", "system", "dial-stdio")
GO_ON = f"{{}}; then `muster up {FLAG.resume} latest`"
_SCRIPT = Scripts(__file__)
_PATH = fields.text(4096, r"(/[^\x00-\x1f\x7f]*)?")


def on_host(session: Session) -> Engine:
    """The engine of a host, over the open SSH connection to it."""
    return session.get_or_make("engine", lambda: Engine(_ThroughDoor(session)))


def on_this_machine() -> Engine:
    """The engine that the `docker` command uses on this machine."""
    return _here(os.environ.get("DOCKER_HOST", ""))


@cache
def _here(_: str) -> Engine:
    return Engine(Here())


class _ThroughDoor:
    """A host's engine, reached over SSH."""

    def __init__(self, session: Session) -> None:
        self._session, self.host, self._lock = session, session.name, threading.Lock()
        self._path: str | None = None

    def connect(self) -> Connection:
        """Connect to the engine's socket, or else to a program on the host that connects to it. Raises DeployError."""
        with self._lock:
            if self._path is None:
                self._path = self._find()
        return self._session.connect(self._path) if self._path else self._session.pipe(_DIAL)

    def explain(self, failed: BaseException, connection: Connection | None) -> DeployError:
        """Why a connection failed: because of SSH, the engine, or the program that connects to it."""
        if lost := self._session.lost():
            return lost
        if isinstance(failed, TimeoutError):
            return docker_faults.fault(str(failed), "docker-silent", self.host)
        if isinstance(failed, Excess):
            return DeployError(f"{self.host}: its engine sent {failed}", f"on {self.host}: docker version")
        words = connection.last_words(_LAST_WORDS_S) if isinstance(connection, Pipe) else ""
        # The end of a program is often known before the end of the SSH connection that carried it.
        end = time.monotonic() + _LOST_S
        while not words and not (lost := self._session.lost()) and time.monotonic() < end:
            time.sleep(_LOST_S / 10)
        return lost or docker_faults.unanswered(words or "it ended the connection", self.host)

    def _find(self) -> str:
        """The path of a socket on the host that can be reached; empty if only a program can reach the engine."""
        done = self._session.run(_SCRIPT("find-socket"), check=False)
        if done.code:
            raise docker_faults.unanswered(done.err.strip() or f"code {done.code}", self.host)
        path = _PATH(done.out.rstrip("\n"), "the engine's socket")
        return path if path and self._answers_at(path) else ""

    def _answers_at(self, path: str) -> bool:
        """Whether an engine answers at this socket: SSH accepts every connection at first, and may then close it."""
        wire = Wire(self._session.connect(path))
        try:
            return wire.ask("GET", "/version").status == http.client.OK
        except TimeoutError:
            return True  # an engine is there, but it hangs
        except (OSError, EOFError, http.client.HTTPException, Excess):
            return False
        finally:
            wire.close()


class Here:
    """The engine of this machine."""

    host = ""

    def __init__(self, call_s: float = CALL_S) -> None:
        self._call_s = call_s

    def connect(self) -> Connection:
        """Connect to the engine's socket, or to the `docker` program that connects to it. Raises OSError."""
        place = os.environ.get("DOCKER_HOST", "") or _place_of_context()
        if not place.startswith(_UNIX):
            return _dial()
        connection = socket.socket(socket.AF_UNIX)
        try:
            connection.settimeout(self._call_s)
            connection.connect(place.removeprefix(_UNIX))
        except BaseException:
            connection.close()
            raise
        return connection

    def explain(self, failed: BaseException, _: Connection | None) -> DeployError:
        """The error for an engine that does not answer."""
        hint = GO_ON.format(docker_faults.cause_of_slug("docker-down").row.hint_here())
        return EngineLost(_why_silent(failed, self._call_s), hint)


def _why_silent(failed: BaseException, waited_s: float) -> str:
    """Why this machine's engine does not answer."""
    if isinstance(failed, PermissionError):
        cause = docker_faults.cause_of_slug("docker-permission")
        return f"{cause.what}: {cause.row.hint_here()}"
    if isinstance(failed, TimeoutError):
        return f"the Docker engine did not answer within {in_seconds(waited_s)}"
    named = next((f" at {name}={os.environ[name]}" for name in _ENGINE_VARIABLES if os.environ.get(name)), "")
    return f"no Docker engine answers{named}"


def _dial() -> Connection:
    """Connect through the `docker` program: to an engine on the network, or one that Docker reaches by ssh."""
    ours, its = socket.socketpair()
    with its:
        try:
            nothing = subprocess.DEVNULL
            subprocess.Popen([*_DIAL], stdin=its.fileno(), stdout=its.fileno(), stderr=nothing, start_new_session=True)
        except BaseException:
            ours.close()
            raise
    return ours


@cache
def _place_of_context() -> str:
    """The address in the `docker` command's current context (Docker Desktop, rootless).

    Raises TimeoutError if the command does not answer: the usual address may be that of another engine.
    """
    command = ["docker", "context", "inspect", "--format", "{{.Endpoints.docker.Host}}"]
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=LOOK_S, check=True).stdout.strip()
    except subprocess.TimeoutExpired as fault:
        raise TimeoutError from fault
    except (OSError, subprocess.CalledProcessError):
        pass
    return "" if os.environ.get("DOCKER_CONTEXT") else f"{_UNIX}/var/run/docker.sock"
