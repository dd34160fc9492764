"""The transport of bytes to a server: a TCP connection, or a ProxyCommand's standard input and output."""

from __future__ import annotations

import errno
import os
import signal
import socket
import subprocess
import time
from contextlib import suppress

from .way import Way

_FAMILIES = {0: socket.AF_UNSPEC, 4: socket.AF_INET, 6: socket.AF_INET6}


def connect(way: Way) -> socket.socket:
    """A TCP connection to the first of its addresses that answers. Raises OSError: the refusal, if any refused."""
    family, until = _FAMILIES[way.family], time.monotonic() + way.timeout_s
    failures: list[OSError] = []
    for kind, _, _, _, address in socket.getaddrinfo(way.host, way.port, family, socket.SOCK_STREAM):
        sock = socket.socket(kind, socket.SOCK_STREAM)
        try:
            if way.bind:
                sock.bind(_source(way.bind, kind))
            # Never 0, which would mean not to wait at all.
            sock.settimeout(max(0.01, until - time.monotonic()))
            sock.connect(address)
            return sock
        except OSError as failed:
            sock.close()
            failures.append(failed)
    raise next((failed for failed in failures if failed.errno == errno.ECONNREFUSED), failures[-1])


def start_proxy(command: str) -> tuple[socket.socket, subprocess.Popen[bytes]]:
    """A ProxyCommand, in the user's shell as OpenSSH runs it, and our end of its standard input and output.

    In a session of its own: a Ctrl-C here is ours to answer, and the connection must outlive it for a while.
    """
    ours, theirs = socket.socketpair()
    shell = os.environ.get("SHELL") or "/bin/sh"
    with theirs:
        process = subprocess.Popen(
            [shell, "-c", f"exec {command}"],
            stdin=theirs.fileno(),
            stdout=theirs.fileno(),
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
    return ours, process


def end_proxy(process: subprocess.Popen[bytes]) -> None:
    """End it and what it started."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _source(bind: str, family: socket.AddressFamily) -> tuple[object, ...]:
    try:
        return socket.getaddrinfo(bind, 0, family, socket.SOCK_STREAM)[0][4]
    except socket.gaierror as failed:
        raise OSError(errno.EADDRNOTAVAIL, f"BindAddress {bind}: {failed.strerror}") from failed
