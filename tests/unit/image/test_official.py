"""The table of official images: each row against what NVIDIA and PyTorch say of drivers and GPUs."""

import re
from pathlib import Path

import pytest

from deploy.core.errors import DeployError
from deploy.image import official
from deploy.image.official import IMAGES, Machine, choose
from deploy.preflight.checks import gpus


def chosen(*machines):
    return choose({f"host-{number}": machine for number, machine in enumerate(machines)})[0].tag


def x86(driver, *gpus):
    return Machine("x86_64", driver, gpus)


@pytest.mark.parametrize(
    ("driver", "gpu", "image"),
    [
        ((580, 95, 5), (9, 0), "2.13.0-cuda13.0"),  # H100, a new driver
        ((550, 54, 15), (9, 0), "2.13.0-cuda12.6"),  # H100, a driver of CUDA 12.4
        ((525, 60, 13), (8, 0), "2.13.0-cuda12.6"),  # A100, the oldest driver of CUDA 12
        ((580, 95, 5), (7, 0), "2.13.0-cuda12.6"),  # V100: CUDA 13 has no code for it
        ((580, 95, 5), (12, 0), "2.13.0-cuda13.0"),  # RTX 5090
        ((570, 86, 15), (12, 0), "2.9.1-cuda12.8"),  # RTX 5090, a driver of CUDA 12.8
        ((570, 86, 15), (10, 0), "2.9.1-cuda12.8"),  # B200
        ((580, 95, 5), (10, 3), "2.13.0-cuda13.0"),  # B300
        ((580, 95, 5), (12, 1), "2.13.0-cuda13.0"),
        ((535, 104, 5), (8, 9), "2.13.0-cuda12.6"),  # L40S: code for 8.6 runs there
        ((535, 104, 5), (6, 1), "2.13.0-cuda12.6"),
    ],
)
def test_driver_and_gpu_choose_the_image(driver, gpu, image):
    assert chosen(x86(driver, gpu)).startswith(image)


def test_one_image_serves_all_hosts():
    assert chosen(x86((580, 95, 5), (9, 0)), x86((550, 54, 15), (8, 0))).startswith("2.13.0-cuda12.6")
    assert chosen(x86((580, 95, 5), (12, 0)), x86((580, 95, 5), (7, 0))).startswith("2.9.1-cuda12.8")


def test_hosts_without_gpus_get_what_most_drivers_take():
    assert chosen(Machine("x86_64")) == official.USUAL.tag


def test_a_driver_that_tells_nothing_is_not_taken_for_a_new_one():
    assert chosen(Machine("x86_64", (), ((9, 0),))).startswith("2.13.0-cuda12.6")
    assert chosen(Machine("x86_64", (), ((12, 0),))).startswith("2.9.1-cuda12.8")


@pytest.mark.parametrize(
    "machine", [x86((470, 82, 1), (8, 0)), x86((580, 95, 5), (3, 5)), Machine("aarch64", (580, 95, 5), ((9, 0),))]
)
def test_where_none_fits_the_host_is_named_with_what_it_has(machine):
    with pytest.raises(DeployError, match="host-0"):
        chosen(machine)


def test_the_table_agrees_with_preflight_and_with_the_dockerfile():
    for image in IMAGES:
        major, minor = map(int, re.search(r"cuda(\d+)\.(\d+)", image.tag).groups())
        assert image.driver == tuple(map(int, gpus.LEAST_DRIVER[major].split(".")))
        assert all(gpus._knows((major, minor), gpu) for gpu in image.gpus)
    dockerfile = (Path(__file__).resolve().parents[3] / "Dockerfile").read_text()
    assert f"GPU_BASE=pytorch/pytorch:{official.USUAL.tag}@{official.USUAL.digest}" in dockerfile
