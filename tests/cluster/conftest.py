"""Real hosts for the tests in this folder: racks of containers with sshd and a Docker engine, started by `make rack`.

    wide_rack   4 nodes: the rack that `make rack RACK=wide NODES=4` (or, with WIDE_RACK=name, of that name) left
                up, as it is; otherwise a new one
    rack        3 nodes, the last with the containerd image store: the rack that `make rack STORE=mixed` left up,
                or the first three nodes of wide_rack
    jump_rack   2 nodes, of which the second is only reachable through the first

Tests share these racks, so a test that changes a node restores it. With KEEP=1, a rack that the tests started stays
up after a failure.
"""

from __future__ import annotations

import os
import subprocess
import uuid
from dataclasses import replace

import pytest

from lab.rack import Rack, forget, make
from tests.cluster.control import BASE, Control


def left_up(name="board", size=3, stores=()):
    """The rack that `make rack` left up, if it has at least `size` nodes and these image stores; otherwise None."""
    containers = subprocess.run(
        ["docker", "ps", "-q", "--filter", f"label=muster.rack={name}"], capture_output=True, text=True, check=True
    )
    rack = Rack(name, len(containers.stdout.split()))
    if rack.size < size or not rack.ssh_config.exists() or not all(map(rack.is_up, rack.hosts)):
        return None
    return rack if {rack.store(host) for host in rack.hosts}.issuperset(stores) else None


def started(request, **options):
    """Start a rack under a new name, and end it with the fixture."""
    rack = Rack(f"test-{uuid.uuid4().hex[:6]}", options["NODES"])
    done = make("rack", RACK=rack.name, **options)
    assert done.returncode == 0, done.stderr
    # Load the trainer's image once for all tests. Without its own name on a host, every test would send its gigabyte.
    # The push that gives the image this name finds its layers already on the hosts.
    copies = f"muster-tests-{os.environ.get('PYTEST_XDIST_TESTRUNUID', uuid.uuid4().hex)[:12]}"
    rack.load(BASE, copies)
    pushed = Control(rack).fab("push", "--image", BASE, hosts=rack.hosts)
    assert pushed.returncode == 0, pushed.stderr
    yield rack
    if os.environ.get("KEEP") == "1" and request.session.testsfailed:
        capture = request.config.pluginmanager.get_plugin("capturemanager")
        with capture.global_and_fixture_disabled():
            print(f"\nKEEP=1: look with  ssh -F {rack.ssh_config} rack-1  or  docker logs {rack.container('rack-1')}")
            print(f"afterwards        make rack-down RACK={rack.name}")
        return
    make("rack-down", RACK=rack.name)
    forget(copies)


@pytest.fixture(scope="session")
def trainer_image(docker):
    """The image on which the tests' runs are based, built with `make image`."""
    done = make("image")
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="session")
def wide_rack(trainer_image, request):
    """Four hosts, the third with the containerd image store."""
    racks = left_up(os.environ.get("WIDE_RACK", "wide"), 4, ())
    if racks:
        yield racks
    else:
        yield from started(request, NODES=4, STORE="mixed")


@pytest.fixture(scope="session")
def rack(docker, request):
    """Three hosts, the last with the containerd image store."""
    return left_up() or replace(request.getfixturevalue("wide_rack"), size=3)


@pytest.fixture(scope="session")
def jump_rack(trainer_image, request):
    """Two hosts; rack-2 only answers connections through rack-1."""
    yield from started(request, NODES=2, JUMP=1)


@pytest.fixture(scope="session")
def on(rack):
    """on(host, *argv): run a command on a host of the rack over SSH and return its standard output."""
    return rack.on


@pytest.fixture
def control(rack):
    """The control side, for a run on the rack's first two hosts; the run is removed after the test."""
    made = Control(rack)
    yield made
    made.clean()
