"""Real OpenSSH servers on loopback, each with its own keys, home and settings; without sshd the tests are skipped.

`server(...)` starts one as a plain process. Only `SetEnv HOME` keeps the tests out of the real home of their user.
"""

from __future__ import annotations

import getpass
import os
import shutil
import signal
import socket
import subprocess
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from deploy.job.inventory import Host
from lab.ports import free_port
from lab.waiting import until

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


class Server:
    """An sshd on `port`. `home` is the home of the user who logs in; `folder` has the server's keys and log."""

    def __init__(self, folder: Path, name: str, authorized: str, options: tuple[str, ...]):
        self.name, self.folder, self.port = name, folder / name, free_port()
        self.home = self.folder / "home"
        self.home.mkdir(parents=True)
        for kind in ("ed25519", "rsa"):
            self.new_key(kind)
        (self.folder / "authorized").write_text(authorized)
        # sshd accepts only one SetEnv line.
        variables = [f"HOME={self.home}", *(line[7:] for line in options if line.startswith("SetEnv "))]
        settings = [
            f"Port {self.port}",
            "ListenAddress 127.0.0.1",
            f"HostKey {self.folder}/key_ed25519",
            f"HostKey {self.folder}/key_rsa",
            f"AuthorizedKeysFile {self.folder}/authorized",
            f"PidFile {self.folder}/pid",
            f"SetEnv {' '.join(variables)}",
            *options,
            "PasswordAuthentication no",
            "KbdInteractiveAuthentication no",
            "StrictModes no",
            "UsePAM no",
            "PermitRootLogin yes",
        ]
        # sshd uses the first value that it finds for a keyword, so the test's options come first.
        (self.folder / "config").write_text("\n".join(settings) + "\n")
        self.start()

    @property
    def host(self) -> Host:
        """The server as a host of an inventory."""
        return Host(self.name, "127.0.0.1", self.port)

    def new_key(self, kind: str = "ed25519") -> None:
        """Make a host key, or replace the existing one."""
        file = self.folder / f"key_{kind}"
        file.unlink(missing_ok=True)
        # 2048 bits, because making a longer RSA key takes seconds.
        bits = ["-b", "2048"] if kind == "rsa" else []
        subprocess.run(["ssh-keygen", "-q", "-t", kind, *bits, "-N", "", "-f", file], check=True)

    def start(self) -> None:
        """Start it and wait until it accepts connections."""
        command = [SSHD, "-D", "-f", self.folder / "config", "-E", self.folder / "log"]
        self.process = subprocess.Popen(command)
        until(self._listens, f"sshd {self.name}", 10)

    def stop(self) -> None:
        """End it and every connection that it serves."""
        for pid in (*self.children(), self.process.pid):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.wait()

    def children(self) -> list[int]:
        """The processes of the connections that it serves, nearest first."""
        with suppress(psutil.NoSuchProcess):
            return [child.pid for child in psutil.Process(self.process.pid).children(recursive=True)]
        return []

    def known(self) -> str:
        """Its lines for a known_hosts file."""
        keys = [(self.folder / f"key_{kind}.pub").read_text().split()[:2] for kind in ("ed25519", "rsa")]
        return "".join(f"[127.0.0.1]:{self.port} {' '.join(key)}\n" for key in keys)

    def _listens(self) -> bool:
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0


@pytest.fixture(scope="session")
def sshd():
    """The server program. MUSTER_REQUIRE_ENGINE=1 turns a skip into a failure."""
    if not SSHD:
        missing = "no sshd here: install openssh-server"
        (pytest.fail if os.environ.get("MUSTER_REQUIRE_ENGINE") == "1" else pytest.skip)(missing)
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)  # the package's service file would create it
    return SSHD


class Client:
    """The user's side: a key, an SSH config and a known_hosts file, all in one folder."""

    def __init__(self, folder: Path):
        self.folder, self.known_hosts = folder, folder / "known_hosts"
        self.config, self.key = folder / "config", folder / "id"
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "me", "-f", self.key], check=True)
        self.public = self.key.with_suffix(".pub").read_text()
        self.settings()

    def settings(self, *first: str, identity: Path | None = None) -> None:
        """Write the SSH config: `first`, then what every test needs."""
        common = [
            "Host *",
            f"IdentityFile {identity or self.key}",
            f"UserKnownHostsFile {self.known_hosts} {self.folder}/more_hosts",
            "GlobalKnownHostsFile none",
            "IdentitiesOnly yes",
            "ConnectTimeout 5",
        ]
        self.config.write_text("\n".join([*first, *common]) + "\n")

    def trusts(self, *servers: Server) -> None:
        """Trust these servers' keys, and no others."""
        self.known_hosts.write_text("".join(server.known() for server in servers))

    def ssh(self, server: Server, command: str) -> subprocess.CompletedProcess[str]:
        """Run a command with OpenSSH's own client."""
        line = ["ssh", "-F", self.config, "-o", "BatchMode=yes", "-p", str(server.port), "127.0.0.1", command]
        return subprocess.run(line, capture_output=True, text=True, timeout=20, check=False)


@pytest.fixture
def client(tmp_path, monkeypatch):
    """A test's own SSH settings, found by MUSTER_SSH_CONFIG; without an agent."""
    folder = tmp_path / "client"
    folder.mkdir()
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    made = Client(folder)
    monkeypatch.setenv("MUSTER_SSH_CONFIG", str(made.config))
    return made


@pytest.fixture
def server(sshd, client, tmp_path):
    """server(*options, name="a") -> a Server that accepts the client's key, and whose key the client trusts."""
    started = []

    def start(*options, name="a"):
        made = Server(tmp_path, name, client.public, options)
        started.append(made)
        client.trusts(*started)
        return made

    yield start
    for made in started:
        if made.process.poll() is None:
            made.stop()


@pytest.fixture
def me():
    """The user who runs the tests and logs in."""
    return getpass.getuser()
