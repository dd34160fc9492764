"""A talk with one command over an open connection, line by line both ways. A room of the door to SSH (session.py)."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from contextlib import suppress

from paramiko import Transport
from paramiko.ssh_exception import SSHException

from deploy import commands, session_run
from deploy.errors import DeployError
from deploy.ssh_faults import Where, fault

_PIECE = 1 << 18


class LineStream:
    """One running command. It learns that nobody listens any more by the end of its input."""

    def __init__(self, transport: Transport, where: Where, argv: Sequence[str]) -> None:
        self._where, self._shown = where, session_run.shown(argv)
        self._marker, self._rest, self._errors = f"muster-{secrets.token_hex(8)}", b"", b""
        self._started = False
        try:
            self._channel = transport.open_session()
            self._channel.exec_command(session_run.wrapped(self._marker, argv))
        except (SSHException, OSError, EOFError) as failed:
            raise fault("lost", where, f" ({failed})") from failed

    def write(self, data: bytes) -> None:
        """Give it more input. Raises SshFault when the connection is lost, DeployError when the command is over."""
        try:
            self._channel.sendall(data)
        except (SSHException, OSError, EOFError) as failed:
            raise self._over() from failed

    def read_line(self, wait_s: float) -> bytes:
        """Its next whole line. Raises DeployError when it ends or says none within `wait_s` seconds."""
        end = time.monotonic() + wait_s
        while True:
            if not self._started:
                _, found, after = self._rest.partition(f"{self._marker}\n".encode())
                if found:
                    self._started, self._rest = True, after
            if self._started and b"\n" in self._rest:
                line, _, self._rest = self._rest.partition(b"\n")
                return line
            self._channel.settimeout(max(0.01, end - time.monotonic()))
            try:
                piece = self._channel.recv(_PIECE)
            except TimeoutError:
                raise fault("slow", self._where, f"`{self._shown}` said nothing for {wait_s:g} s") from None
            except (SSHException, OSError, EOFError) as failed:
                raise fault("lost", self._where, f" while `{self._shown}` ran ({failed})") from failed
            if not piece:
                raise self._over()
            self._rest += piece

    def close(self) -> None:
        """End it. Calling it again does nothing."""
        with suppress(SSHException, OSError, EOFError):
            self._channel.close()

    def _over(self) -> DeployError:
        """Why the command is over, in its own last words."""
        said = b""
        with suppress(SSHException, OSError, EOFError, TimeoutError):
            self._channel.settimeout(1.0)
            while piece := self._channel.recv_stderr(_PIECE):
                said += piece
        _, _, said = said.rpartition(f"{self._marker}\n".encode())
        code = self._channel.recv_exit_status() if self._channel.exit_status_ready() else -1
        return DeployError(f"`{self._shown}` ended with code {code}: {commands.last_words(said)}")
