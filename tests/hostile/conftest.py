"""Fixture `hostile`: SSH servers that attack the client, a home with files to lose, and a check that none changed.

there = hostile({"take": tar_with_a_link}, evil2={...})   # servers `evil` and `evil2`, each with a table of answers
done = there.task("fetch", "--hosts", "evil")             # runs in this process; returns code, out, err
done = there.command("fetch", "--hosts", "evil")          # the same in a separate process
assert there.harm("RUN") == []                            # nothing changed except runs/RUN
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import paramiko
import pytest

from deploy.commands import main
from deploy.run.files import folders
from tests.hostile.server import Answers, Greeting, Server

# Runs a command as `deploy.commands.main.main` does.
PROGRAM = """
import atexit, os, re, sys
from pathlib import Path
from deploy.commands import main as cli
# Of this program alone: what getrusage says begins with the memory of who started it.
peak = lambda: re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]
atexit.register(lambda: Path(os.environ["MUSTER_TEST_PEAK"]).write_text(peak()))
sys.exit(cli.run(sys.argv[1:]))
"""
CHECKOUT = Path(__file__).resolve().parents[2]
PRECIOUS = {
    "home/.ssh/authorized_keys": "ssh-ed25519 AAAA me\n",
    "home/.docker/config.json": "{}\n",
    "home/.bashrc": "# mine\n",
    "home/important": "the only copy\n",
    "work/train.py": "print('mine')\n",
    "work/runs/mine/record.json": '{"id": "mine", "arguments": []}\n',
    "outside/file": "not yours\n",
}


class Ended(NamedTuple):
    """How a command ended: its exit code and what it printed."""

    code: int
    out: str
    err: str
    peak_mb: float = 0.0

    @property
    def output(self) -> str:
        """Standard output and standard error together; asserts that neither has a traceback."""
        assert "Traceback" not in self.out + self.err, self.err
        return self.out + self.err


class Hostile:
    """The servers by name, the home and working folder of the user who connects to them, and their first state."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.home, self.work = folder / "home", folder / "work"
        self.runs = self.work / "runs"
        self.servers: dict[str, Server] = {}
        for name, text in PRECIOUS.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)
        self.runs.chmod(0o700)  # as Muster creates it
        paramiko.ECDSAKey.generate().write_private_key_file(str(folder / "id"))
        self._before = self._seen()

    def serve(self, servers: dict[str, Answers], banner: str = "", greeting: Greeting = b"") -> None:
        """Start the servers, and write the SSH config and known_hosts file that reach them."""
        for name, answers in servers.items():
            self.servers[name] = Server(self.folder / f"host-{name}", answers, banner, greeting)
        hosts = [f"Host {name}\n  HostName 127.0.0.1\n  Port {server.port}\n" for name, server in self.servers.items()]
        common = (
            f"Host *\n  IdentityFile {self.folder}/id\n  IdentitiesOnly yes\n"
            f"  UserKnownHostsFile {self.folder}/known_hosts\n  GlobalKnownHostsFile none\n"
        )
        (self.folder / "ssh_config").write_text("".join(hosts) + common)
        (self.folder / "known_hosts").write_text("".join(server.known() for server in self.servers.values()))

    @property
    def hosts(self) -> str:
        """The names of all servers, as a value for --hosts."""
        return ",".join(self.servers)

    @property
    def environment(self) -> dict[str, str]:
        """The environment for each Muster process that a test starts."""
        own = {"HOME": str(self.home), "MUSTER_SSH_CONFIG": str(self.folder / "ssh_config"), "NO_COLOR": "1"}
        own |= {"XDG_STATE_HOME": str(self.folder / "state"), "XDG_CONFIG_HOME": str(self.folder / "config")}
        own["DOCKER_HOST"] = f"unix://{self.folder}/no-engine"
        variables = {name: value for name, value in os.environ.items() if name not in ("SSH_AUTH_SOCK", "COLUMNS")}
        return {**variables, **own, "PYTHONPATH": str(CHECKOUT), "COLUMNS": "400"}

    def task(self, *words: str, within_s: float = 30) -> Ended:
        """Run a muster command in this process; fails the test if it does not end within `within_s`."""
        self._capsys.readouterr()
        with _limit(within_s, words):
            try:
                code = main.run(words)
            except SystemExit as end:
                code = int(end.code or 0)
        return Ended(code, *self._capsys.readouterr())

    def command(self, *words: str, within_s: float = 60) -> Ended:
        """Run a muster command in a separate process; `peak_mb` is the peak of its memory."""
        line = [sys.executable, "-c", PROGRAM, *words]
        peak = self.folder / "peak"
        given = {**self.environment, "MUSTER_TEST_PEAK": str(peak)}
        done = subprocess.run(line, cwd=self.work, env=given, capture_output=True, timeout=within_s, check=False)
        printed = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        return Ended(done.returncode, *printed, int(peak.read_text()) / 1024)

    def harm(self, *runs: str) -> list[str]:
        """Paths that changed outside the folders of these runs, and symbolic links inside those folders."""
        now = self._seen()
        changed = sorted(name for name in {*now, *self._before} if now.get(name) != self._before.get(name))
        own = tuple(f"work/runs/{run}" for run in runs)
        changes = [name for name in changed if name not in own and not name.startswith(tuple(f"{run}/" for run in own))]
        links = [name for name, (kind, *_) in now.items() if kind == "link" and name.startswith(own)]
        return [name for name in changes if name not in ("work/runs/latest", "home/.cache")] + links

    def _seen(self) -> dict[str, tuple[str, ...]]:
        """Every file, folder and link by its path, with its type, mode and content."""
        contents: dict[str, tuple[str, ...]] = {}
        for part in ("home", "work", "outside"):
            for folder, below, files in os.walk(self.folder / part):
                below[:] = [name for name in below if (Path(folder).name, name) != (".cache", "muster")]
                for name in (*below, *files):
                    path = Path(folder) / name
                    contents[str(path.relative_to(self.folder))] = _what(path)
        return contents


def _what(path: Path) -> tuple[str, ...]:
    mode = oct(path.lstat().st_mode)
    if path.is_symlink():
        return "link", mode, os.readlink(path)
    if path.is_dir():
        return "folder", mode
    return "file", mode, path.read_bytes().hex() if path.is_file() else ""


@contextmanager
def _limit(seconds: float, words: tuple[str, ...]) -> Iterator[None]:
    def late(*_: object) -> None:
        raise AssertionError(f"`muster {' '.join(words)}` did not end within {seconds:g} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


@pytest.fixture
def hostile(tmp_path, monkeypatch, capsys):
    """hostile(answers, banner=, greeting=, other=answers...) -> Hostile with server `evil` and one per keyword."""
    rig = Hostile(tmp_path, capsys)
    for name, value in rig.environment.items():
        if name != "PYTHONPATH":
            monkeypatch.setenv(name, value)
    monkeypatch.delenv("SSH_AUTH_SOCK", raising=False)
    monkeypatch.chdir(rig.work)
    monkeypatch.setattr(folders, "RUNS", rig.runs)

    def start(answers: Answers, banner: str = "", greeting: Greeting = b"", **others: Answers) -> Hostile:
        rig.serve({"evil": answers, **others}, banner, greeting)
        return rig

    yield start
    for server in rig.servers.values():
        server.close()
