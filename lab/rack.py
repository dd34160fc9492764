"""Hosts of a rack (`make rack`): containers with sshd and a Docker engine each, and commands on them."""

from __future__ import annotations

import os
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
STORES = {"overlay2": "classic", "overlayfs": "containerd"}


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

    def ssh(self, host, *argv, timeout=30, **more):
        """Run a command on a host as its user, by OpenSSH's own client; gives what it did."""
        line = ["ssh", "-T", "-F", self.ssh_config, "-o", "BatchMode=yes", "-o", "ConnectTimeout=5", host, *argv]
        return subprocess.run(line, capture_output=True, text=True, timeout=timeout, **more)

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

    def load(self, image):
        """Give every host an image of this machine's engine, past SSH, which would encrypt each of its gigabytes."""
        with tempfile.NamedTemporaryFile(suffix=".tar") as archive, ThreadPoolExecutor() as pool:
            subprocess.run(["docker", "save", "--output", archive.name, image], check=True)

            def one(host):
                line = ["docker", "exec", "-i", self.container(host), "docker", "load", "--quiet"]
                with open(archive.name, "rb") as file:
                    subprocess.run(line, stdin=file, stdout=subprocess.DEVNULL, check=True, timeout=300)

            list(pool.map(one, self.hosts))

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
