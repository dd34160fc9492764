"""A real Slurm in one container: slurmctld, several slurmd, and sshd, like a login host with a shared home."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import tempfile
import time
import uuid
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
HOME = HERE.parents[1]
SHARED = "/home/muster"


class Slurm:
    """A running cluster. Commands run as the user `muster`, whose home all nodes share."""

    def __init__(self, container: str) -> None:
        self.container = container

    def shell(self, command: str, folder: str = SHARED, timeout: float = 60, user: str = "muster"):
        """Run a shell line; returns the completed process."""
        line = ["docker", "exec", "--user", user, "--workdir", folder, self.container, "bash", "-c", command]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout)

    def out(self, command: str, folder: str = SHARED, timeout: float = 60, user: str = "muster") -> str:
        """What the line prints; fails if the line fails."""
        done = self.shell(command, folder, timeout, user)
        assert done.returncode == 0, f"{command}: {done.returncode}: {done.stdout}{done.stderr}"
        return done.stdout.strip()

    def write(self, path: str, text: str) -> None:
        """Write a file in the shared home."""
        line = ["docker", "exec", "-i", "--user", "muster", "--workdir", SHARED, self.container]
        made = f"mkdir -p $(dirname {shlex.quote(path)}) && cat >{shlex.quote(path)}"
        subprocess.run([*line, "bash", "-c", made], input=text, text=True, check=True, timeout=30)

    def address(self) -> str:
        """The login host's address, as this machine reaches it."""
        form = "{{range .NetworkSettings.Networks}}{{.IPAddress}}{{end}}"
        line = ["docker", "inspect", "--format", form, self.container]
        return subprocess.run(line, capture_output=True, text=True, check=True, timeout=30).stdout.strip()

    def job(self, number: str) -> dict[str, str]:
        """What slurmctld reports about a job, by field."""
        words = self.out(f"scontrol show job --oneliner {number}").split()
        return dict(word.split("=", 1) for word in words if "=" in word)

    def wait(self, number: str, *states: str, timeout: float = 120) -> str:
        """Wait until a job is in one of the states; returns that state."""
        return self.until(lambda: next((s for s in states if self.job(number)["JobState"] == s), ""), timeout)

    def until(self, condition, timeout: float = 120):
        """Wait until `condition` returns something true; returns that value."""
        deadline = time.monotonic() + timeout
        while not (found := condition()):
            assert time.monotonic() < deadline, self.out("squeue -a; sinfo; tail -n 5 ~/*.out 2>/dev/null || true")
            time.sleep(0.3)
        return found


def image() -> str:
    """The image's tag; builds the image if it is missing. Needs muster-trainer:cpu (`make image`)."""
    lock = HOME / "requirements" / "control.txt"
    content = b"".join((HERE / name).read_bytes() for name in ("Dockerfile", "boot.sh")) + lock.read_bytes()
    tag = f"muster-slurm:{zlib.crc32(content):08x}"
    if subprocess.run(["docker", "image", "inspect", tag], capture_output=True).returncode == 0:
        return tag
    secrets = subprocess.run([HOME / "images" / "secrets.sh"], capture_output=True, text=True, check=True).stdout
    with tempfile.TemporaryDirectory() as context:
        for source in (HERE / "Dockerfile", HERE / "boot.sh", lock):
            shutil.copy(source, context)
        Path(context, "boot.sh").chmod(0o755)
        line = ["docker", "build", "--quiet", "--tag", tag, *secrets.splitlines(), context]
        done = subprocess.run(line, capture_output=True, text=True, env={**os.environ, "DOCKER_BUILDKIT": "1"})
    assert done.returncode == 0, done.stderr
    return tag


@contextmanager
def cluster(nodes: int = 2) -> Iterator[Slurm]:
    """A cluster while the block runs, with this checkout at /checkout."""
    name = f"muster-slurm-{uuid.uuid4().hex[:6]}"
    line = ["docker", "run", "--detach", "--name", name, "--hostname", "login", "--env", "PYTHONPATH=/checkout"]
    line += ["--volume", f"{HOME}:/checkout:ro", "--shm-size", "256m", image(), str(nodes)]
    subprocess.run(line, check=True, capture_output=True, timeout=60)
    slurm = Slurm(name)
    try:
        slurm.until(lambda: slurm.shell("sinfo --noheader -o '%D %t'").stdout.strip() == f"{nodes} idle", 60)
        yield slurm
    finally:
        subprocess.run(["docker", "rm", "--force", "--volumes", name], capture_output=True, timeout=60)
