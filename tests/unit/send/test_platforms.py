"""No image, wheel or tool for another processor starts on a host: each fits the host, or is refused by name.

The facts are what such hosts report (`uname -m`, glibc, GPUs); the ARM hosts are a GH200 and a DGX Spark.
"""

import dataclasses
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from deploy.core.errors import DeployError, UsageError
from deploy.hosts.node import bare
from deploy.hosts.start import plan
from deploy.job.options import Job
from deploy.preflight.checks import hosts as host_checks
from deploy.send.image import official, push_plan
from deploy.send.image.official import Machine
from deploy.send.packages import base, uv
from tests.hosts import FACTS
from tests.unit.send.test_image import IMAGE, STORE

REFUSED = "refused"
GH200, SPARK = ((570, 86, 15), ((9, 0),)), ((580, 95, 5), ((12, 1),))


def platform(*machines):
    facts = {f"host-{n}": dataclasses.replace(FACTS, architecture=machine) for n, machine in enumerate(machines)}
    assert bool(list(host_checks.architectures(facts))) is (len(set(machines)) > 1)  # preflight's check agrees
    return plan.platform(facts)


def image(of, on):
    """The architecture of the image that the host accepts."""
    push_plan.plan_push(dataclasses.replace(IMAGE, architecture=of), dataclasses.replace(STORE, architecture=on))
    return of


def named(machine, gpu):
    return official.choose({"host": Machine(machine, *gpu)})[0].tag.split("-")[1]


def described(machine, libc=("glibc", "2.39")):
    return base.read({"python": "3.12.16", "platform": {"machine": machine, "libc": list(libc)}, "base": []}, "a base")


def environment(machine, gpu):
    """The torch build chosen for a host without an engine."""
    fact = dataclasses.replace(FACTS, architecture=machine, driver=gpu[0], capabilities=gpu[1], gpus=("0",))
    return bare.base_of({"host": fact}, Job()).split("-")[-2]


def tool(machine, monkeypatch):
    """The platform for which uv is fetched for this kind of machine."""
    asked = []

    def fetch(target, more):
        asked.append(more[-1])
        (target / "bin").mkdir(parents=True)
        (target / "bin/uv").write_bytes(b"uv")

    monkeypatch.setattr(uv, "_fetch", fetch)
    monkeypatch.setattr(uv.platform, "machine", lambda: "another")
    with TemporaryDirectory() as folder:
        for _ in range(2):  # it is fetched once for all hosts
            assert uv.program_for("host", machine, Path(folder))[:] == b"uv"
    (platform,) = asked
    return platform


COMBINATIONS = {
    "a run on x86": (lambda _: platform("x86_64", "x86_64"), "linux/amd64"),
    "a run on ARM": (lambda _: platform("aarch64", "aarch64"), "linux/arm64"),
    "x86 beside ARM": (lambda _: platform("x86_64", "aarch64"), REFUSED),
    "an image of x86 on x86": (lambda _: image("amd64", "amd64"), "amd64"),
    "an image of ARM on ARM": (lambda _: image("arm64", "arm64"), "arm64"),
    "an image of x86 on ARM": (lambda _: image("amd64", "arm64"), REFUSED),
    "an image of ARM on x86": (lambda _: image("arm64", "amd64"), REFUSED),
    "PyTorch's image on x86": (lambda _: named("x86_64", SPARK), "cuda13.0"),
    "PyTorch's image on a GH200": (lambda _: named("aarch64", GH200), REFUSED),
    "wheels on x86": (lambda _: described("x86_64").platform, "x86_64-manylinux_2_39"),
    "wheels on ARM": (lambda _: described("aarch64").platform, "aarch64-manylinux_2_39"),
    "wheels on an old ARM": (lambda _: described("armv7l").platform, REFUSED),
    "wheels on musl": (lambda _: described("x86_64", ("musl", "1.2")).platform, REFUSED),
    "packages of x86 and ARM": (lambda _: base.same({"a": described("x86_64"), "b": described("aarch64")}), REFUSED),
    "uv for x86": (lambda patch: tool("x86_64", patch), "manylinux2014_x86_64"),
    "uv for ARM": (lambda patch: tool("aarch64", patch), "manylinux2014_aarch64"),
    "uv for RISC-V": (lambda patch: tool("riscv64", patch), REFUSED),
    "Python for ARM": (lambda _: uv._getting("aarch64")[2].partition("-linux-")[2], "aarch64-gnu"),
    "torch on a bare GH200": (lambda _: environment("aarch64", GH200), "cu126"),
    "torch on a bare Spark": (lambda _: environment("aarch64", SPARK), "cu130"),
}


@pytest.mark.parametrize("name", COMBINATIONS)
def test_everything_that_starts_fits_the_hosts_processor(name, monkeypatch):
    work, right = COMBINATIONS[name]
    if right is REFUSED:
        with pytest.raises((DeployError, UsageError)) as refusal:
            work(monkeypatch)
        assert refusal.value.hint
    else:
        assert work(monkeypatch) == right
