"""One Slurm cluster with two nodes in a container, shared by the tests here; each test has its own folder."""

import os
import subprocess
import uuid
from pathlib import Path

import pytest

from lab.rack import make
from tests.checkout import FAB, HOME
from tests.slurm.cluster import SHARED, cluster


@pytest.fixture(scope="session")
def slurm(docker):
    """slurmctld, two slurmd and sshd, with this checkout."""
    done = make("image")
    assert done.returncode == 0, done.stderr
    with cluster(2) as made:
        yield made


@pytest.fixture
def folder(slurm):
    """A new, empty folder for this test in the shared home."""
    path = f"{SHARED}/{uuid.uuid4().hex[:8]}"
    slurm.out(f"mkdir {path}")
    return path


class Laptop:
    """A machine that reaches the cluster's login host only over SSH, with a project in `work`."""

    def __init__(self, slurm, home: Path) -> None:
        self.slurm, self.work = slurm, home / "project"
        self.work.mkdir()
        subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", home / "id"], check=True, timeout=30)
        slurm.until(lambda: slurm.shell("pgrep -x sshd").stdout)
        slurm.write(f"{SHARED}/.ssh/authorized_keys", (home / "id.pub").read_text())
        address = slurm.address()
        key = slurm.shell("cat /etc/ssh/ssh_host_ed25519_key.pub").stdout
        (home / "known_hosts").write_text(f"{address} {key}")
        own = f"IdentityFile {home}/id\nIdentitiesOnly yes\nUserKnownHostsFile {home}/known_hosts\n"
        (home / "config").write_text(f"Host login\nHostName {address}\nUser muster\n{own}")
        self.environment = {**os.environ, "MUSTER_SSH_CONFIG": str(home / "config"), "XDG_STATE_HOME": str(home)}

    def start(self, *words: str) -> subprocess.Popen:
        """Start a fab command in the background; its output goes into the file `said`."""
        line = [FAB, "--search-root", HOME, *words]
        with self.said.open("w") as said:
            return subprocess.Popen(line, cwd=self.work, env=self.environment, stdout=said, stderr=subprocess.STDOUT)

    def fab(self, *words: str, timeout: float = 120) -> tuple[int, str]:
        """Run a fab command to its end; returns its exit code and output."""
        return self.start(*words).wait(timeout), self.said.read_text()

    def hears(self, words: str, timeout: float = 120) -> str:
        """Wait until the background command has printed these words; returns its output so far."""
        return self.slurm.until(lambda: words in (text := self.said.read_text()) and text, timeout)

    @property
    def said(self) -> Path:
        return self.work.parent / "said"


@pytest.fixture
def laptop(slurm, tmp_path):
    return Laptop(slurm, tmp_path)
