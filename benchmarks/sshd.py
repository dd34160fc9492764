"""OpenSSH servers to measure against: each with a key, a port and a home, and the configuration that knows them all."""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
_START_S = 20.0


@dataclass(frozen=True)
class Place:
    """Where one server listens, and what starts it there; `variables` are those of its sessions (`NAME=value`)."""

    name: str
    address: str
    port: int
    start: Callable[..., subprocess.Popen[bytes]] = subprocess.Popen
    variables: tuple[str, ...] = ()


def on_loopback(name: str) -> Place:
    """A place on this machine, on a port that is free."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return Place(name, "127.0.0.1", int(probe.getsockname()[1]))


@contextmanager
def servers(folder: Path, places: Sequence[Place]) -> Iterator[Path]:
    """A server at each place; gives the SSH configuration. Raises RuntimeError when one does not start."""
    if not _SSHD:
        raise RuntimeError("no sshd here: install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _key(folder / "id")
    running = []
    try:
        for place in places:
            running.append(_start(folder / place.name, place, folder / "id.pub"))
        for place, process in zip(places, running, strict=True):
            _await(folder / place.name, process)
        (folder / "ssh_config").write_text(_settings(folder, places))
        yield folder / "ssh_config"
    finally:
        for process in running:
            process.kill()
            process.wait()


def _settings(folder: Path, places: Sequence[Place]) -> str:
    known = [f"[{place.address}]:{place.port} {(folder / place.name / 'key.pub').read_text()}" for place in places]
    (folder / "known_hosts").write_text("".join(known))
    hosts = [f"Host {place.name}\n    HostName {place.address}\n    Port {place.port}\n" for place in places]
    common = {
        "IdentityFile": folder / "id",
        "UserKnownHostsFile": folder / "known_hosts",
        "User": getpass.getuser(),
        "IdentitiesOnly": "yes",
        "GlobalKnownHostsFile": "none",
    }
    return "".join(hosts) + "Host *\n" + "".join(f"    {name} {value}\n" for name, value in common.items())


def _start(folder: Path, place: Place, authorized: Path) -> subprocess.Popen[Any]:
    (folder / "home").mkdir(parents=True)
    _key(folder / "key")
    settings = {
        "Port": place.port,
        "ListenAddress": place.address,
        "HostKey": folder / "key",
        "AuthorizedKeysFile": authorized,
        "PidFile": folder / "pid",
        "SetEnv": " ".join([f"HOME={folder}/home", *place.variables]),
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    return place.start([str(_SSHD), "-D", "-f", str(folder / "config"), "-E", str(folder / "log")])


def _await(folder: Path, process: subprocess.Popen[Any]) -> None:
    """Until it listens: it writes its process id then."""
    end = time.monotonic() + _START_S
    while not (folder / "pid").exists():
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"sshd of {folder.name} did not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)


def _key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)
