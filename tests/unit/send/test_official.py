"""The table of official images, checked against what NVIDIA and PyTorch document about drivers and GPUs."""

import re
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.preflight.checks import gpus
from deploy.send.image import official
from deploy.send.image.official import IMAGES, Machine, choose


def chosen(*machines):
    return choose({f"host-{number}": machine for number, machine in enumerate(machines)})[0].tag


def x86(driver, *gpus):
    return Machine("x86_64", driver, gpus)


@pytest.mark.parametrize(
    ("driver", "gpu", "image"),
    [
        ((580, 95, 5), (9, 0), "2.13.0-cuda13.0"),  # H100 with a new driver
        ((550, 54, 15), (9, 0), "2.13.0-cuda12.6"),  # H100 with a CUDA 12.4 driver
        ((525, 60, 13), (8, 0), "2.13.0-cuda12.6"),  # A100 with the oldest CUDA 12 driver
        ((580, 95, 5), (7, 0), "2.13.0-cuda12.6"),  # V100: CUDA 13 does not support it
        ((580, 95, 5), (12, 0), "2.13.0-cuda13.0"),  # RTX 5090
        ((570, 86, 15), (12, 0), "2.9.1-cuda12.8"),  # RTX 5090 with a CUDA 12.8 driver
        ((570, 86, 15), (10, 0), "2.9.1-cuda12.8"),  # B200
        ((580, 95, 5), (10, 3), "2.13.0-cuda13.0"),  # B300
        ((580, 95, 5), (12, 1), "2.13.0-cuda13.0"),
        ((535, 104, 5), (8, 9), "2.13.0-cuda12.6"),  # L40S: code for 8.6 runs on it
        ((535, 104, 5), (6, 1), "2.13.0-cuda12.6"),
    ],
)
def test_driver_and_gpu_determine_the_image(driver, gpu, image):
    assert chosen(x86(driver, gpu)).startswith(image)


def test_one_image_serves_all_hosts():
    assert chosen(x86((580, 95, 5), (9, 0)), x86((550, 54, 15), (8, 0))).startswith("2.13.0-cuda12.6")
    assert chosen(x86((580, 95, 5), (12, 0)), x86((580, 95, 5), (7, 0))).startswith("2.9.1-cuda12.8")


def test_hosts_without_gpus_get_the_image_that_most_drivers_support():
    assert chosen(Machine("x86_64")) == official.USUAL.tag


def test_an_unknown_driver_version_is_not_taken_for_a_new_one():
    assert chosen(Machine("x86_64", (), ((9, 0),))).startswith("2.13.0-cuda12.6")
    assert chosen(Machine("x86_64", (), ((12, 0),))).startswith("2.9.1-cuda12.8")


@pytest.mark.parametrize(
    "machine", [x86((470, 82, 1), (8, 0)), x86((580, 95, 5), (3, 5)), Machine("aarch64", (580, 95, 5), ((9, 0),))]
)
def test_a_host_that_no_image_fits_is_named(machine):
    with pytest.raises(DeployError, match="host-0"):
        chosen(machine)


def test_the_table_agrees_with_preflight_and_with_the_dockerfile():
    for image in IMAGES:
        major, minor = map(int, re.search(r"cuda(\d+)\.(\d+)", image.tag).groups())
        assert image.driver == tuple(map(int, gpus.LEAST_DRIVER[major].split(".")))
        assert all(gpus._knows((major, minor), gpu) for gpu in image.gpus)
    dockerfile = (Path(__file__).resolve().parents[3] / "Dockerfile").read_text()
    assert f"GPU_BASE=pytorch/pytorch:{official.USUAL.tag}@{official.USUAL.digest}" in dockerfile
