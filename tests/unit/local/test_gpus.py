"""Sharing this machine's GPUs between commands. nvidia-smi is a stub, and its GPUs are named "Fake GPU"."""

import errno
from pathlib import Path

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.job.values import visible_gpus
from deploy.local import gpus
from tests import fake_gpus

# These tests start programs.
pytestmark = pytest.mark.long


@pytest.fixture(autouse=True)
def four(tmp_path, monkeypatch):
    """A machine with four fake GPUs."""
    (tmp_path / "nvidia-smi").write_text(fake_gpus.smi())
    (tmp_path / "nvidia-smi").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")


def test_gpus_that_one_command_holds_are_given_to_no_other_until_released():
    first = gpus.claim_gpus(2, "one.py")
    try:
        with pytest.raises(
            DeployError, match=r"2 free GPUs of 4, and 3 asked for: the deploy of one.py \(.+\) has GPU 0"
        ):
            gpus.claim_gpus(3, "two.py")
        second = gpus.claim_gpus(2, "two.py")
        assert [gpu.index for gpu in (*first.gpus, *second.gpus)] == [0, 1, 2, 3]
        second.release()
    finally:
        first.release()
    whole = gpus.claim_gpus("auto", "three.py")
    assert len(whole.gpus) == 4
    whole.release()


def test_a_claim_that_cannot_be_written_keeps_no_gpu_and_no_file(monkeypatch):
    def full(descriptor, data):
        raise OSError(errno.ENOSPC, "No space left on device")

    before = {*Path("/var/tmp").rglob("*claim-*")}
    with monkeypatch.context() as patched:
        patched.setattr(gpus.os, "write", full)
        with pytest.raises(OSError, match="No space"):
            gpus.claim_gpus("auto", "one.py")
    assert {*Path("/var/tmp").rglob("*claim-*")} <= before
    gpus.claim_gpus("auto", "two.py").release()


@pytest.mark.parametrize(
    ("named", "taken"),
    [
        ("1", [1]),
        ("3,1", [3, 1]),
        (f"{fake_gpus.UUIDS[2]}, 0", [2, 0]),
        ("GPU-00000003", [3]),
        ("2,9,0", [2]),
        (None, [0, 1, 2, 3]),
    ],
)
def test_a_run_gets_only_the_gpus_that_cuda_visible_devices_allows(named, taken):
    assert gpus.count_gpus("auto", named) == len(taken)
    own = gpus.claim_gpus("auto", "one.py", named)
    own.release()
    assert [gpu.index for gpu in own.gpus] == taken


@pytest.mark.parametrize("named", ["", "-1", "-1,0", "GPU-5", "1,1"])
def test_cuda_visible_devices_can_hide_all_gpus(named):
    assert gpus.count_gpus("auto", named) == 0


@pytest.mark.parametrize(
    "odd", ["echo WARNING: infoROM is corrupted at gpu 0000:0B:00.0; exit 14", "echo Unknown Error; exit 15"]
)
def test_working_gpus_are_counted_although_nvidia_smi_also_reports_errors(tmp_path, odd):
    (tmp_path / "nvidia-smi").write_text(fake_gpus.smi(2).replace("exit 0", odd))
    assert gpus.count_gpus("auto", None) == 2


@pytest.mark.parametrize(("modalias", "is_gpu"), [("10DEd00002330sv0sd0bc03", True), ("10DEd000022A3bc06", False)])
def test_a_failing_nvidia_smi_stops_a_run_only_if_the_machine_has_a_gpu(tmp_path, monkeypatch, modalias, is_gpu):
    (tmp_path / "nvidia-smi").write_text("#!/bin/sh\necho NVIDIA-SMI has failed\nexit 9\n")
    (tmp_path / "modalias").write_text(f"pci:v0000{modalias}sc02i00\n")
    monkeypatch.setattr(gpus, "_DEVICES", (str(tmp_path / "modali*"),))
    assert (gpus.count_gpus("auto", ""), gpus.count_gpus("auto", "-1"), gpus.count_gpus(0, None)) == (0, 0, 0)
    if is_gpu:
        with pytest.raises(DeployError, match="could not tell which GPUs it has: nvidia-smi ended with code 9"):
            gpus.count_gpus("auto", None)
        return
    assert gpus.count_gpus("auto", None) == 0
    with pytest.raises(UsageError, match="asked for, the host has"):
        gpus.count_gpus(1, None)


def test_missing_gpus_are_refused_before_anything_starts():
    for asked, named in (((4,), None), (5, None), (2, "1"), ((0,), "1")):
        with pytest.raises(UsageError, match="asked for, the host has"):
            gpus.count_gpus(asked, named)
    assert (gpus.count_gpus(2, None), gpus.count_gpus((3,), None), gpus.count_gpus(0, None)) == (2, 1, 0)


def test_mig_devices_in_cuda_visible_devices_are_left_alone():
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "MIG-5"}) is None
    assert visible_gpus({"CUDA_VISIBLE_DEVICES": "2"}) == "2"
