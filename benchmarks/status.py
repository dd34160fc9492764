"""`fab status` on 16 SSH hosts, beside one parallel round trip of plain Fabric to the same hosts.

    python -m benchmarks.status [--quick]

The hosts are 16 OpenSSH servers on this machine's loopback, each with a key, a port and a home of its own; a docker
that answers there is this machine's. All are whole processes, the start of Python included, and take turns.
"""

from __future__ import annotations

import getpass
import os
import shutil
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks import nodes
from benchmarks.figure import Row, alone, result, say, spread
from benchmarks.venv import HOME
from deploy import look_commands

HOSTS, MOST_RATIO = 16, 2.0
_SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")
_FABRIC = """
import sys
from fabric import Config, ThreadingGroup
config = Config(runtime_ssh_path=sys.argv[1])
ThreadingGroup(*sys.argv[3:], config=config).run(sys.argv[2], hide=True)
"""


def measure(quick: bool) -> dict[str, Any]:
    """Seconds of the whole command; the rivals take turns with ours."""
    repetitions = 3 if quick else 9
    names = [f"host-{number:02d}" for number in range(HOSTS)]
    ours: list[float] = []
    nothing: list[float] = []
    same: list[float] = []
    with nodes.scratch() as scratch, servers(scratch, names) as config:
        # Both find their modules compiled, as everybody does from the second time on.
        kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        environment = {**kept, "MUSTER_SSH_CONFIG": str(config), "PYTHONPYCACHEPREFIX": str(scratch / "compiled")}
        status = [Path(sys.executable).with_name("fab"), "status", "--hosts", ",".join(names)]
        plain = [sys.executable, "-c", _FABRIC, config]
        question = look_commands.status()[-1]
        for repetition in range(repetitions + 1):
            found = [seconds(command, environment) for command in (status, [*plain, "true", *names])]
            found.append(seconds([*plain, question, *names], environment))
            if repetition:  # the first warms the caches of all
                for values, value in zip((ours, nothing, same), found, strict=True):
                    values.append(value)
                say(f"{repetition}/{repetitions}: {found[0]:.2f} s, Fabric {found[1]:.2f} s, same {found[2]:.2f} s")
    return _result(ours, nothing, same)


def seconds(command: Sequence[Any], environment: dict[str, str]) -> float:
    """How long a command takes. Raises when it fails."""
    began = time.monotonic()
    done = subprocess.run(command, cwd=HOME, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{command[0]}: {done.returncode}: {done.stdout[-1000:]}{done.stderr[-1000:]}")
    return time.monotonic() - began


@contextmanager
def servers(folder: Path, names: Sequence[str]) -> Iterator[Path]:
    """An sshd for each name; gives the SSH configuration that knows them."""
    if not _SSHD:
        raise RuntimeError("no sshd here: install openssh-server")
    if os.getuid() == 0:
        Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    _key(folder / "id")
    running, settings, known = [], [], []
    try:
        for name in names:
            port = _free_port()
            running.append(_start(folder / name, port, folder / "id.pub"))
            settings.append(f"Host {name}\n    HostName 127.0.0.1\n    Port {port}\n")
            known.append(f"[127.0.0.1]:{port} {(folder / name / 'key.pub').read_text()}")
        (folder / "known_hosts").write_text("".join(known))
        common = {
            "IdentityFile": folder / "id",
            "UserKnownHostsFile": folder / "known_hosts",
            "User": getpass.getuser(),
        }
        settings.append("Host *\n" + "".join(f"    {name} {value}\n" for name, value in common.items()))
        (folder / "ssh_config").write_text(
            "".join(settings) + "    IdentitiesOnly yes\n    GlobalKnownHostsFile none\n"
        )
        yield folder / "ssh_config"
    finally:
        for process in running:
            process.kill()
            process.wait()


def _start(folder: Path, port: int, authorized: Path) -> subprocess.Popen[bytes]:
    (folder / "home").mkdir(parents=True)
    _key(folder / "key")
    settings = {
        "Port": port,
        "ListenAddress": "127.0.0.1",
        "HostKey": folder / "key",
        "AuthorizedKeysFile": authorized,
        "PidFile": folder / "pid",
        "SetEnv": f"HOME={folder}/home",
        "PasswordAuthentication": "no",
        "StrictModes": "no",
        "UsePAM": "no",
        "PermitRootLogin": "yes",
    }
    (folder / "config").write_text("".join(f"{name} {value}\n" for name, value in settings.items()))
    process = subprocess.Popen([str(_SSHD), "-D", "-f", folder / "config", "-E", folder / "log"])
    end = time.monotonic() + 10
    while not _listens(port):
        if process.poll() is not None or time.monotonic() > end:
            raise RuntimeError(f"sshd on port {port} did not start: {(folder / 'log').read_text()}")
        time.sleep(0.02)
    return process


def _key(file: Path) -> None:
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", file], check=True)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _result(ours: list[float], nothing: list[float], same: list[float]) -> dict[str, Any]:
    ratio = statistics.median(ours) / statistics.median(nothing)
    against_same = statistics.median(ours) / statistics.median(same)
    row = Row(
        f"fab status on {HOSTS} hosts",
        f"{spread(ours)} s",
        f"Fabric's ThreadingGroup running `true` {spread(nothing)} s",
        f"{ratio:.2f}x",
        f"<= {MOST_RATIO}x",
        ratio <= MOST_RATIO,
    )
    asked = Row("the same", f"{spread(ours)} s", f"asked the same by Fabric {spread(same)} s", f"{against_same:.2f}x")
    note = (
        f"{len(ours)} repetitions; all {HOSTS} sshd, their shells and docker's client run on this machine's cores too"
    )
    return result([row, asked], [note])


if __name__ == "__main__":
    alone(measure, __doc__)
