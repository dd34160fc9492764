"""Choose the official PyTorch image that suits the hosts' drivers and GPUs, if the user names no image. Pure.

For hosts without an engine, the same table chooses the torch build.

Sources. Images: pytorch/pytorch, for x86-64 alone (no arm64 manifest: NVIDIA-NeMo/labs-molt#123, September 2026).
GPUs: the lists that PyTorch's binaries are built with (pytorch/test-infra, pytorch_pkg_helpers/cuda.py). Drivers:
NVIDIA's "CUDA Compatibility", minor version compatibility: any driver of the same major version works, starting with
the oldest driver of that version.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ...core.errors import DeployError

Capability = tuple[int, int]


@dataclass(frozen=True)
class Official:
    """One image: the oldest driver for its CUDA, and the GPUs it has code for. `on`: also all GPUs from this one on."""

    tag: str
    digest: str
    driver: tuple[int, ...]
    gpus: tuple[Capability, ...]
    on: Capability | None = None

    @property
    def reference(self) -> str:
        """The image's name for an engine: by digest, so that all hosts pull the same image."""
        return f"pytorch/pytorch@{self.digest}"

    def knows(self, gpu: Capability) -> bool:
        """Whether it has code for such a GPU: code for 8.0 runs on 8.x; later generations can run only its PTX."""
        return any(gpu[0] == code[0] and gpu >= code for code in self.gpus) or (self.on is not None and gpu >= self.on)


@dataclass(frozen=True)
class Machine:
    """The facts about a host that decide. `driver` and `gpus` are empty if they are unknown or the host has no GPU."""

    architecture: str
    driver: tuple[int, ...] = ()
    gpus: tuple[Capability, ...] = ()


# The newest CUDA first. The image for 12.8 has an older torch, because 2.13 has no build for it.
IMAGES = (
    Official(
        "2.13.0-cuda13.0-cudnn9-runtime",
        "sha256:db80a41f8428644cebcb3d75b0b62df334ab6c0e75785951eb25f48bfbd42407",
        (580, 65, 6),
        ((7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)),
        (12, 0),
    ),
    Official(
        "2.13.0-cuda12.6-cudnn9-runtime",
        "sha256:6acf597eeb8e376a96580dde4952f37cc017fef732bb40bfc73f28f25e3f64b4",
        (525, 60, 13),
        ((5, 0), (6, 0), (7, 0), (7, 5), (8, 0), (8, 6), (9, 0)),
    ),
    Official(
        "2.9.1-cuda12.8-cudnn9-runtime",
        "sha256:7b324d212a4450795b49edba9949b7cdc72429148a64e974334bfe5774d51385",
        (525, 60, 13),
        ((7, 0), (7, 5), (8, 0), (8, 6), (9, 0), (10, 0), (12, 0)),
    ),
)
# For hosts without GPUs, and for drivers of unknown version: the image that works with the most drivers.
USUAL = IMAGES[1]


def choose(machines: Mapping[str, Machine]) -> tuple[Official, str]:
    """The image for all of these hosts, and the reason. If there is none, raises DeployError that lists each host."""
    if strange := [host for host, machine in machines.items() if machine.architecture not in ("x86_64", "amd64")]:
        raise DeployError(
            f"{', '.join(strange)}: there is no official PyTorch image for {machines[strange[0]].architecture}",
            "choose an image that has torch: --image nvcr.io/nvidia/pytorch:YY.MM-py3, or --dockerfile FILE",
        )
    drivers = [machine.driver for machine in machines.values() if machine.driver]
    gpus = sorted({gpu for machine in machines.values() for gpu in machine.gpus})
    drivers_known = all(machine.driver for machine in machines.values() if machine.gpus)
    if not drivers and not gpus:
        return USUAL, "the usual one: no host reported a GPU driver"
    for image in IMAGES if drivers_known else (USUAL, IMAGES[2]):
        if all(driver >= image.driver for driver in drivers) and all(map(image.knows, gpus)):
            return image, f"for {_words(drivers, gpus)}"
    each = "; ".join(f"{host}: {_words([m.driver] * bool(m.driver), m.gpus)}" for host, m in machines.items())
    raise DeployError(
        f"no official PyTorch image has code for all these GPUs and works with all these drivers: {each}",
        f"driver {'.'.join(map(str, IMAGES[0].driver))} or newer works with GPUs from 7.5 up; or: --image NAME",
    )


def _words(drivers: Sequence[tuple[int, ...]], gpus: Sequence[Capability]) -> str:
    driver = f"driver {'.'.join(map(str, min(drivers)))}" if drivers else "an unknown driver"
    return f"{driver}, compute capability {', '.join(f'{a}.{b}' for a, b in gpus) or 'unknown'}"
