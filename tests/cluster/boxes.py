"""Rented boxes: containers with only an SSH server on a mapped port: no engine, and 64 MB of shared memory."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from lab.ports import free_port
from lab.waiting import until
from tests.cluster import mirror
from tests.cluster.control import Control
from tests.cluster.test_bootstrap import docker, make_image

_BOOT = """
ssh-keygen -A >/dev/null; mkdir -p /run/sshd "$AT/.ssh"; echo "$KEY" >"$AT/.ssh/authorized_keys"
chown -R "$USER" "$AT/.ssh"; chmod -R go= "$AT/.ssh"; eval "$FIRST"
exec env -u KEY -u AT -u USER -u FIRST tini -- /usr/sbin/sshd -D -e
"""
# Lists what a run may leave in addition to what it keeps: processes, shared memory, scratch files, containers.
_LIST_LEFTOVERS = """
for pid in $(ls /proc | grep -x '[0-9]*'); do
    ! tr '\\0' '\\n' <"/proc/$pid/environ" 2>/dev/null | grep -q ^MUSTER_BARE= ||
        echo "process $pid $(tr '\\0' ' ' <"/proc/$pid/cmdline")"
done
pgrep -af 'sleep 7777|main import main' | grep -v pgrep
ls -d /dev/shm/* /tmp/muster-* ~/.muster/bare/*/containers/* ~/.muster/runs/*=* 2>/dev/null
grep -l ':7359 .* 0A' /proc/net/tcp
true
"""


@dataclass(frozen=True)
class Boxes:
    """Boxes that are up: `box-1`, ... in `ssh_config`. They get packages from `index`."""

    name: str
    size: int
    folder: Path
    index: str

    @property
    def ssh_config(self) -> Path:
        """The value for MUSTER_SSH_CONFIG."""
        return self.folder / "config"

    @property
    def hosts(self) -> list[str]:
        return [f"box-{number}" for number in range(1, self.size + 1)]

    def container(self, host: str) -> str:
        """The name of the container on this machine's engine that plays this box."""
        return f"{self.name}-{host.removeprefix('box-')}"

    def ssh(self, host: str, script: str) -> subprocess.CompletedProcess[str]:
        """Run a script as the login user; return the finished process."""
        line = ["ssh", "-T", "-F", self.ssh_config, "-o", "BatchMode=yes", host, "sh -s"]
        return subprocess.run(line, input=script, capture_output=True, text=True, timeout=60)

    def on(self, host: str, script: str) -> str:
        """Return what a script prints on this host; fail if the script fails."""
        done = self.ssh(host, script)
        assert done.returncode == 0, f"{host}: {script}: {done.stderr}"
        return done.stdout.strip()

    def left(self, host: str) -> list[str]:
        """What runs have left on this host, apart from what they keep."""
        return self.on(host, _LIST_LEFTOVERS).splitlines()

    def restart(self, host: str) -> None:
        """Restart a box as a provider stops and starts a pod: each process ends, and the disk stays."""
        docker("restart", "--time", "0", self.container(host))
        until(lambda: self.ssh(host, "true").returncode == 0, f"{host} to be up again", 60)


@contextmanager
def started(
    size: int, image: str, folder: Path, user: str = "ops", first: str = "", options: Sequence[str] = ()
) -> Iterator[Boxes]:
    """Start `size` boxes for the login `user`. Root runs `first` in each box first; `options` go to `docker run`."""
    if left := os.environ.get("BOXES"):  # FOLDER NAME INDEX of boxes that are up, with the files of earlier runs
        up, called, index = left.split()
        yield Boxes(called, size, Path(up), index)
        return
    name = f"muster-box-{uuid.uuid4().hex[:6]}"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / "key"], check=True)
    key, home = (folder / "key.pub").read_text(), "/root" if user == "root" else f"/home/{user}"
    docker("network", "create", "--label", "muster.box", name)
    gateway = docker("network", "inspect", "--format", "{{(index .IPAM.Config 0).Gateway}}", name)
    try:
        with mirror.serve(gateway) as index:
            boxes = Boxes(name, size, folder, index)
            for host in boxes.hosts:
                words = (f"KEY={key}", f"AT={home}", f"USER={user}", f"FIRST={first}")
                given = [word for pair in words for word in ("--env", pair)]
                where = ("--name", boxes.container(host), "--hostname", host, "--network", name)
                port = f"127.0.0.1:{free_port()}:22"  # the same after a restart
                docker("run", "--detach", *where, "--publish", port, *given, *options, image, "sh", "-ec", _BOOT)
            (folder / "config").write_text("".join(_settings(boxes, host, user) for host in boxes.hosts))
            yield boxes
    finally:
        for number in range(1, size + 1):
            subprocess.run(["docker", "rm", "--force", "--volumes", f"{name}-{number}"], capture_output=True)
        docker("network", "rm", name)


def control_of(boxes: Boxes, code: Path, **files: str) -> Control:
    """The control side of a test on boxes; `files`: the scripts of its folder `code`."""
    made = Control(boxes)
    made.environment |= {"UV_DEFAULT_INDEX": boxes.index}
    made.code = code
    code.mkdir(exist_ok=True)
    for name, text in files.items():
        (code / f"{name}.py").write_text(text)
    return made


def leave_nothing(control: Control) -> None:
    """End the run of a test, and wait until nothing of it is left on the boxes."""
    control.clean()
    for host in control.rack.hosts:
        until(lambda host=host: not control.rack.left(host), f"{host}: {control.rack.left(host)} to be gone", 20)


def _settings(boxes: Boxes, host: str, user: str) -> str:
    container = boxes.container(host)

    def key() -> str:
        words = ["docker", "exec", container, "cat", "/etc/ssh/ssh_host_ed25519_key.pub"]
        return subprocess.run(words, capture_output=True, text=True).stdout.rpartition(" ")[0]

    until(key, f"the key of {host}", 60)
    port = docker("port", container, "22").rpartition(":")[2]
    with open(boxes.folder / "known", "a") as known:
        known.write(f"[127.0.0.1]:{port} {key()}\n")
    return (
        f"Host {host}\n  HostName 127.0.0.1\n  Port {port}\n  User {user}\n  IdentityFile {boxes.folder}/key\n"
        f"  IdentitiesOnly yes\n  UserKnownHostsFile {boxes.folder}/known\n"
    )


if (
    __name__ == "__main__"
):  # python -m tests.cluster.boxes SIZE: boxes that stay until Enter, for benchmarks and manual tries
    with (
        TemporaryDirectory(prefix="muster-boxes-") as place,
        started(int(sys.argv[1]), make_image(), Path(place)) as hosts,
    ):
        print(f"{hosts.folder} {hosts.name} {hosts.index}", flush=True)
        sys.stdin.readline()
