"""The hosts of a rack (`make rack`): containers, each with sshd and a Docker engine; and commands on them."""

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
# No two engines may have the same id. First this links the layers and blobs, then it copies everything that is missing.
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
    """Run `make TARGET OPTION=...` as a user would, and return its result, whether it failed or not."""
    line = ["make", "--no-print-directory", target, *(f"{name}={value}" for name, value in options.items())]
    names = ("NODES", "STORE", "JUMP", "RACK", "ALL", "MAKEFLAGS", "TARGET")
    inherited = {name: value for name, value in os.environ.items() if name not in names}
    return subprocess.run(line, cwd=HOME, env=inherited, capture_output=True, text=True, timeout=300)


@dataclass(frozen=True)
class Rack:
    """A running rack. Its hosts are `rack-1`, `rack-2`, ... in `ssh_config`, whatever the rack's own name is."""

    name: str
    size: int

    @property
    def ssh_config(self):
        """The file for MUSTER_SSH_CONFIG."""
        return HOME / "rack" / (".state" if self.name == "rack" else f".state-{self.name}") / "ssh_config"

    @property
    def hosts(self):
        return [f"rack-{number}" for number in range(1, self.size + 1)]

    def container(self, host):
        """The name of the container on this machine's engine that is the host."""
        return f"muster-{self.name}-{host.removeprefix('rack-')}"

    def line(self, host):
        """The words that run a command on a host as its user, with OpenSSH's own client."""
        return ["ssh", "-T", "-F", str(self.ssh_config), "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host]

    def ssh(self, host, *argv, timeout=30, **more):
        """Run a command on a host, and return its result."""
        return subprocess.run([*self.line(host), *argv], capture_output=True, text=True, timeout=timeout, **more)

    def on(self, host, *argv, timeout=30):
        """The standard output of a command on a host; raises AssertionError if the command fails."""
        done = self.ssh(host, *argv, timeout=timeout)
        assert done.returncode == 0, f"{host}: {' '.join(argv)}: {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def root(self, host, *argv, timeout=30):
        """Run a command as root and without SSH, for what a test breaks and mends."""
        line = ["docker", "exec", self.container(host), *argv]
        done = subprocess.run(line, capture_output=True, text=True, timeout=timeout)
        assert done.returncode == 0, f"{host}: {' '.join(argv)}: {done.returncode}: {done.stderr}"
        return done.stdout.strip()

    def shell(self, host, command, timeout=60):
        """Run a shell command line as root and without SSH."""
        return self.root(host, "sh", "-c", command, timeout=timeout)

    def load(self, image, copies):
        """Load an image of this machine's engine on every host, without SSH, which would encrypt gigabytes.

        Loading takes an engine half a minute on one core. So one host loads it for each image store, and the other
        hosts get its files. Volumes named after `copies` and the store keep the files for further racks, until
        `forget(copies)`.
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
        # Because of the label, `make rack-down ALL=1` removes what a killed test left.
        docker("volume", "create", "--label", "muster.rack=copies", copy)
        try:
            self._copy(host, self.container(host), copy)
        except BaseException:
            docker("volume", "rm", copy)  # otherwise an incomplete copy could be taken for a complete one
            raise

    def _copy(self, host, source, target):
        """Copy the files of the engine with the volume `source` to the volume `target`, while the host is down.

        An engine never writes to an image's layers again, so they are stored only once: as hard links, which need both
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
        """The host's IP address, from the SSH configuration."""
        listed = subprocess.run(["ssh", "-G", "-F", self.ssh_config, host], capture_output=True, text=True, check=True)
        return next(line.split()[1] for line in listed.stdout.splitlines() if line.startswith("hostname "))

    def store(self, host):
        """The image store of the host's engine: classic or containerd."""
        return STORES[self.on(host, "docker", "info", "--format", "{{.Driver}}")]

    def is_up(self, host):
        """Whether SSH and the engine work for the host's user."""
        return self.ssh(host, "docker", "version").returncode == 0


def forget(copies):
    """Remove the volumes that `Rack.load` has made for `copies`."""
    with _alone():
        for store in STORES.values():
            subprocess.run(["docker", "volume", "rm", f"{copies}-{store}"], capture_output=True)


@contextmanager
def _alone():
    """Hold a lock, so that only one process of this checkout at a time makes, reads or removes copies."""
    folder = os.open(HOME / "rack", os.O_RDONLY)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)


def docker(*words):
    """The standard output of this machine's docker client; raises an error if it fails."""
    return subprocess.run(["docker", *words], capture_output=True, text=True, check=True).stdout.strip()
