"""Real hosts for the tests in this folder: racks of containers with sshd and a Docker engine, started by `make rack`.

    rack        3 nodes, the last with the containerd image store; what `make rack STORE=mixed` left up is used as it is
    jump_rack   2 nodes, the second only reachable through the first

Tests share both: whoever changes a node puts it back. KEEP=1 leaves what was started up after a failure.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import dataclass

import pytest

from tests.cluster.control import HOME, Control

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


def left_up():
    """The rack that `make rack` left up, when it has what tests need: 3 nodes and both image stores."""
    found = subprocess.run(
        ["docker", "ps", "-q", "--filter", "label=muster.rack=rack"], capture_output=True, text=True, check=True
    )
    rack = Rack("rack", len(found.stdout.split()))
    if rack.size < 3 or not rack.ssh_config.exists() or not all(map(rack.is_up, rack.hosts)):
        return None
    return rack if {rack.store(host) for host in rack.hosts} == {"classic", "containerd"} else None


def started(request, **options):
    """A rack under a name of our own, for as long as a fixture lives."""
    rack = Rack(f"test-{uuid.uuid4().hex[:6]}", options["NODES"])
    done = make("rack", RACK=rack.name, **options)
    assert done.returncode == 0, done.stderr
    yield rack
    if os.environ.get("KEEP") == "1" and request.session.testsfailed:
        capture = request.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nKEEP=1: look with  ssh -F {rack.ssh_config} rack-1  or  docker logs {rack.container('rack-1')}")
            print(f"afterwards        make rack-down RACK={rack.name}")
        return
    make("rack-down", RACK=rack.name)


@pytest.fixture(scope="session")
def trainer_image(docker):
    """The image that the tests' runs stand on, built as `make image` builds it."""
    done = make("image")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def rack(trainer_image, request):
    """Three hosts, the last with the containerd image store."""
    found = left_up()
    if found:
        yield found
    else:
        yield from started(request, NODES=3, STORE="mixed")


@pytest.fixture(scope="session")
def jump_rack(trainer_image, request):
    """Two hosts; rack-2 only answers what comes through rack-1."""
    yield from started(request, NODES=2, JUMP=1)


@pytest.fixture(scope="session")
def on(rack):
    """on(host, *argv): standard output of a command on a host of the rack, over SSH."""
    return rack.on


@pytest.fixture
def control(rack):
    """The control side, for a run on the rack's first two hosts; nothing is left of that run."""
    made = Control(rack)
    yield made
    made.clean()
