"""The shell scripts that ask a host about its GPUs, with stand-ins for hung drivers and kernel logs."""

import os
import subprocess
import time

import pytest

from deploy.host import commands, gpus

# These tests start other programs.
pytestmark = pytest.mark.long

# Imitates, as well as a shell can, a process stuck in the driver that no signal ends.
HANGS = "trap '' TERM; echo 1 >>$0.asked; sleep 6"
STORM = "".join(f"[8.{n}] NVRM: Xid (PCI:0000:61:00): 45, pid=1496200, name=python, Ch {n:08x}\n" for n in range(120))


@pytest.fixture
def host(tmp_path):
    """host(words, **tools): what a script prints if it finds these tools, and /sys and /proc/driver in `tmp_path`."""

    def run(words, **tools):
        for name, does in {"docker": "exit 0", **tools}.items():
            path = tmp_path / name.replace("_", "-")
            path.write_text(f"#!/bin/sh\n{does}\n")
            path.chmod(0o755)
        words = [
            word.replace("/sys/bus/pci", f"{tmp_path}/pci").replace("/proc/driver", f"{tmp_path}") for word in words
        ]
        given = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
        done = subprocess.run(words, env=given, stdout=subprocess.PIPE, timeout=30, check=True)
        return done.stdout.decode().splitlines()

    return run


def test_a_driver_hang_that_no_signal_ends_is_reported_and_waited_for_only_once(host, tmp_path):
    began = time.monotonic()
    seen = gpus.parse(host(commands.script("gpus", "1", commands.GPU_COLUMNS), nvidia_smi=HANGS))
    assert seen.fault.startswith("nvidia-smi does not answer")
    lines = host(commands.script("look", "1", "-", commands.GPU_COLUMNS), nvidia_smi=HANGS)
    assert any(line.startswith("addresses ") for line in lines), "the rest of the look is there"
    assert time.monotonic() - began < 6
    assert (tmp_path / "nvidia-smi.asked").read_text() == "1\n1\n"


def test_gpus_and_their_processes_are_listed_despite_a_corrupt_inforom(host):
    smi = "case $1 in *apps*) echo GPU-1, 7, 100, python;; *) echo 0, GPU-1, 100, 16280, 0, P100;; esac"
    warns = smi + "; echo WARNING: infoROM is corrupted at gpu 0000:0B:00.0; exit 14"
    seen = gpus.parse(host(commands.script("gpus", "5", commands.GPU_COLUMNS), nvidia_smi=warns))
    assert [holder.pid for holder in seen.gpus[0].holders] == [7]
    assert "nvidia-smi" not in seen.fault


@pytest.mark.parametrize(
    ("device", "said"),
    [
        ("v000010DEd00002330sv000010DEsd000016C1bc03sc02i00", True),
        ("v000010DEd000022B1sv00000000sd00000000bc06sc04i00", False),
    ],
    ids=["an H100", "a bridge of Grace"],
)
def test_only_a_real_gpu_without_nvidia_smi_is_an_error(host, tmp_path, device, said):
    (tmp_path / "pci/devices/0").mkdir(parents=True)
    (tmp_path / "pci/devices/0/modalias").write_text(f"pci:{device}\n")
    assert bool(gpus.parse(host(commands.script("gpus", "5", commands.GPU_COLUMNS))).fault) is said


def test_the_first_xid_is_kept_when_every_channel_logs_one(host, tmp_path):
    (tmp_path / "nvidia").mkdir()
    (tmp_path / "nvidia/version").touch()
    (tmp_path / "log").write_text("[8.0] NVRM: Xid (PCI:0000:61:00): 79, GPU has fallen off the bus.\n" + STORM)
    lines = host(commands.look(), dmesg=f"cat {tmp_path}/log")
    kernel = [line for line in lines if line.startswith("kernel ")]
    assert [line.partition("): ")[2][:3] for line in kernel] == ["79,", "45,"]
