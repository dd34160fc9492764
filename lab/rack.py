"""Hosts of a rack (`make rack`): containers with sshd and a Docker engine each, and commands on them."""

from __future__ import annotations

import fcntl
import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lab import waiting

HOME = Path(__file__).resolve().parents[1]
STORES = {"overlay2": "classic", "overlayfs": "containerd"}
# No two engines have the same id. First the layers and blobs, as links; then all that is not there yet.
_COPY = """
to=/volumes/$2/_data
find "$to" -mindepth 1 -delete
cd "/volumes/$1/_data"
for layers in overlay2/*/diff containerd/daemon/*content*/blobs containerd/daemon/*snapshotter*/snapshots/*/fs; do
    [ ! -d "$layers" ] || cp --archive --link --parents "$layers" "$to"
done
cp --archive --update=none . "$to"
rm -f "$to/engine-id"
"""


def make(target, **options):
    """`make TARGET OPTION=...` as a user types it; gives what it did, whether it failed or not."""
    line = ["make", "--no-print-directory", target, *(f"{name}={value}" for name, value in options.items())]
    names = ("NODES", "STORE", "JUMP", "RACK", "ALL", "MAKEFLAGS", "TARGET")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(line, cwd=HOME, env=inherited, capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Rack:
    """A rack that is up. Its hosts are `rack-1`, `rack-2`, ... in `ssh_config`, whatever the rack's own name."""

    name: str
    size: int

    @property
    def ssh_config(self):
        """What MUSTER_SSH_CONFIG shall say."""
        return HOME / "rack" / (".state" if self.name == "rack" else f".state-{self.name}") / "ssh_config"

    @property
    def hosts(self):
        return [f"rack-{number}" for number in range(1, self.size + 1)]

    def container(self, host):
        """The container on this machine's engine that is the host."""
        return f"muster-{self.name}-{host.removeprefix('rack-')}"

    def line(self, host):
        """The command that runs another one on a host as its user, by OpenSSH's own client."""
        return ["ssh", "-T", "-F", str(self.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host]

    def ssh(self, host, *argv, timeout=30, **more):
        """Run a command on a host; gives what it did."""
        return subprocess.run([*self.line(host), *argv], capture_output=True, text=True, timeout=timeout, **more)

    def on(self, host, *argv, timeout=30):
        """Standard output of a command on a host; fails when the command fails."""
        done = self.ssh(host, *argv, timeout=timeout)
        assert done.returncode == 0, f"{host}: {' '.join(argv)}: {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def root(self, host, *argv, timeout=30):
        """The same as root and past SSH, for what a test breaks and mends."""
        line = ["docker", "exec", self.container(host), *argv]
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{host}: {' '.join(argv)}: {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def shell(self, host, command, timeout=60):
        """The same of a line of a shell."""
        return self.root(host, "sh", "-c", command, timeout=timeout)

    def load(self, image, copies):
        """Give every host an image of this machine's engine, past SSH, which would encrypt each of its gigabytes.

        An engine takes half a minute of a core to load it. So one loads it for each image store, and the others get
        its files. Volumes called `copies` and the store keep them for further racks, until `forget(copies)`.
        """
        stores = {host: self.store(host) for host in self.hosts}
        with _alone(), ThreadPoolExecutor() as pool:
            kept = docker("volume", "ls", "--format", "{{.Name}}").split()
            first = {store: host for host, store in stores.items() if f"{copies}-{store}" not in kept}
            list(pool.map(lambda store: self._load(first[store], image, f"{copies}-{store}"), first))
            list(pool.map(lambda host: self._copy(host, f"{copies}-{stores[host]}", self.container(host)), self.hosts))

    def _load(self, host, image, copy):
        save = subprocess.Popen(["docker", "save", image], stdout=subprocess.PIPE)
        line = ["docker", "exec", "-i", self.container(host), "docker", "load", "--quiet"]
        subprocess.run(line, stdin=save.stdout, stdout=subprocess.DEVNULL, check=True, timeout=300)
        assert save.wait() == 0
        # The label has `make rack-down ALL=1` remove what a killed test left.
        docker("volume", "create", "--label", "muster.rack=copies", copy)
        try:
            self._copy(host, self.container(host), copy)
        except BaseException:
            docker("volume", "rm", copy)  # nobody may take a part of it for the whole
            raise

    def _copy(self, host, source, target):
        """Give the engine whose volume is `target` what the one of `source` keeps, while the host is down.

        What no engine ever writes to again, an image's layers, stays on the disk once: as hard links, which need both
        volumes below one mount.
        """
        docker("stop", self.container(host))
        volumes = f"{docker('info', '--format', '{{.DockerRootDir}}')}/volumes"
        image = docker("inspect", "--format", "{{.Image}}", self.container(host))
        mount = ("--mount", f"type=bind,source={volumes},target=/volumes")
        done = subprocess.run(
            ["docker", "run", "--rm", *mount, image, "sh", "-ec", _COPY, "copy", source, target],
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, f"{source} to {target}: {done.stderr[-1000:]}"
        docker("start", self.container(host))
        waiting.until(lambda: self.is_up(host), f"{host} to be up again")

    def address(self, host):
        """The host's IP address, as the SSH configuration has it."""
        listed = subprocess.run(["ssh", "-G", "-F", self.ssh_config, host], capture_output=True, text=True, check=True)
        return next(line.split()[1] for line in listed.stdout.splitlines() if line.startswith("hostname "))

    def store(self, host):
        """Which image store the host's engine has: classic or containerd."""
        return STORES[self.on(host, "docker", "info", "--format", "{{.Driver}}")]

    def is_up(self, host):
        """Whether SSH and the engine answer the host's user."""
        return self.ssh(host, "docker", "version").returncode == 0


def forget(copies):
    """Remove the volumes that `Rack.load` has made under this name."""
    with _alone():
        for store in STORES.values():
            subprocess.run(["docker", "volume", "rm", f"{copies}-{store}"], capture_output=True)


@contextmanager
def _alone():
    """One process of this checkout at a time makes, reads or removes copies."""
    folder = os.open(HOME / "rack", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def docker(*words):
    """Standard output of this machine's engine's client; fails when that fails."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()
