"""Runs get GPUs of hosts by UUID, no GPU twice, and wait for them in order. The GPUs are fake (tests/fake_gpus.py)."""

import pytest

from lab import waiting
from tests import fake_gpus
from tests.cluster.control import Control

SCRIPT = """
import os, time
print(os.environ["NVIDIA_VISIBLE_DEVICES"], os.environ["LOCAL_WORLD_SIZE"], flush=True)
print(os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ.get("CUDA_DEVICE_ORDER"), flush=True)
time.sleep(600)
"""


@pytest.fixture(scope="module")
def hosts(rack):
    """Two hosts with four GPUs each."""
    with fake_gpus.on_host(rack, rack.hosts[0]), fake_gpus.on_host(rack, rack.hosts[1]):
        yield rack.hosts[:2]


@pytest.fixture
def controls(rack, hosts):
    """Two runs, which are removed after the test."""
    made = [Control(rack), Control(rack)]
    yield made
    for each in made:
        each.clean()


@pytest.fixture
def words(tmp_path):
    (tmp_path / "train.py").write_text(SCRIPT)
    return ("--folder", str(tmp_path), "--script", "train.py", "--separate", "--detach")


def given(control):
    """The GPUs of the run's container on each host, as the engine assigned them."""
    form = "'{{range .HostConfig.DeviceRequests}}{{.DeviceIDs}}{{end}}'"
    look = f"docker inspect --format {form} muster-{control.run}"
    return {host: control.rack.on(host, look).strip("[]").split() for host in control.hosts}


def claims(control):
    return [
        line
        for host in control.hosts
        for line in control.rack.on(host, "find /var/tmp/ -name '*claim-*'; true").split()
    ]


@pytest.mark.holds("gpus-once")
def test_free_gpus_are_given_by_uuid_and_never_twice(controls, words):
    one, two = controls
    assert one.deploy("--gpus", "0,2", *words).returncode == 0
    assert given(one) == {host: [fake_gpus.UUIDS[0], fake_gpus.UUIDS[2]] for host in one.hosts}
    refused = two.deploy("--gpus", "1,2", *words)
    assert refused.returncode == 1
    assert f"run {one.run} (muster) has GPU 2" in refused.stderr
    assert two.deploy("--gpus", "2", *words).returncode == 0
    assert given(two) == {host: [fake_gpus.UUIDS[1], fake_gpus.UUIDS[3]] for host in two.hosts}
    visible = f"{fake_gpus.UUIDS[1]},{fake_gpus.UUIDS[3]} 2"
    waiting.until(lambda: visible in two.fab("logs", "--run", two.run).stdout, "a rank for each GPU")
    (first, *_) = [row for row in one.rows("gpus") if row["host"] == one.hosts[0]]
    assert [gpu["given"] for gpu in first["gpus"]] == [[f"run {run} (muster)"] for run in (one.run, two.run) * 2]
    assert not claims(one), "what was claimed for the start is given back"


def test_a_waiting_node_takes_free_gpus_of_its_host_and_others_see_which(controls, words):
    one, two = controls
    assert one.deploy("--gpus", "3", *words).returncode == 0
    assert two.deploy("--gpus", "2", "--wait", *words).returncode == 0
    refused = Control(one.rack).deploy("--gpus", "1", *words)
    assert f"run {two.run} (muster) waits there for GPUs" in refused.stderr, "nobody passes"
    assert one.fab("down", "--run", one.run).returncode == 0
    waiting.until(lambda: "all 2" in two.fab("logs", "--run", two.run).stdout, "a rank for each GPU")
    assert "0,1 PCI_BUS_ID" in two.fab("logs", "--run", two.run).stdout
    (first, *_) = [row for row in one.rows("gpus") if row["host"] == one.hosts[0]]
    assert [gpu["given"] for gpu in first["gpus"]] == [[f"run {two.run} (muster)"]] * 2 + [[]] * 2
    assert one.deploy("--gpus", "2", *words).returncode == 0
    assert given(one) == {host: [fake_gpus.UUIDS[2], fake_gpus.UUIDS[3]] for host in one.hosts}
