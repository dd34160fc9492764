"""What a host lacks of an image, and what to send: a decision with its reason, from what the engine reports. Pure.

It relies on rules of `docker load` that were measured in docs/decisions/: a layer may be left out if the host has it
together with every layer below it, on both image stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ...core.errors import DeployError
from ...core.fields import array, default, digits, object_or_empty, record, table, text, words
from ..folder.content import HostFolder
from ..space import refuse_full
from .compression import GZIP, PLAIN, ZSTD, Codec
from .model import DIGEST, MARK, TOP, Base, Image, make_image, run_image

# An engine names architectures as the kernel does, an image as Go does.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_KILOBYTES = digits(1 << 50)
_ABOUT = record(
    {
        "version": text(100),
        "machine": text(100),
        "system": text(100),
        "status": default(array(array(text(), 10)), []),
        "root": text(4096),
    }
)
# Go writes an empty list as null.
_IMAGE = record(
    {
        "id": text(100, r"([A-Za-z0-9][A-Za-z0-9:._-]*)?"),
        "tags": default(array(text(500), 10_000), []),
        "labels": default(table(text(1000), words(1 << 16), 10_000), {}),
        "layers": default(array(DIGEST), []),
    }
)
HAS_IT = "the host has it"


@dataclass(frozen=True)
class HostImage:
    """An image on a host. `mark` is empty unless a push made the image."""

    id: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]
    mark: str


@dataclass(frozen=True)
class Store:
    """A host's engine as `commands.look_at_images` shows it; `free` is in bytes, None if the host did not report it."""

    version: str
    architecture: str
    system: str
    containerd: bool
    root: str
    free: int | None
    images: tuple[HostImage, ...]


@dataclass(frozen=True)
class PushPlan:
    """What to send to one host: `layers` by diff id, bottom up. `present`: it has the image, so none of it is sent.

    `folders`: the folders next to the image. `bytes`: the size of the layers as tar files, as far as known.
    """

    layers: tuple[str, ...]
    present: bool
    why: str
    folders: tuple[HostFolder, ...] = ()
    bytes: int = 0


def parse_store(output: str) -> Store:
    """Parse the JSON lines printed by `commands.look_at_images`; other lines are ignored.

    Raises DeployError if the engine's own line is missing, BadAnswer for a field that cannot be read.
    """
    lines = [object_or_empty(line) for line in output.split("\n")]
    engine = next((line for line in lines if line.get("version")), None)
    if not engine:
        raise DeployError("the Docker engine did not say what it is", "on that host: docker info")
    about = _ABOUT(engine, "")
    free = [_KILOBYTES(line["free"], "free") * 1024 for line in lines if line.get("free")]
    return Store(
        version=about["version"],
        architecture=_ARCHITECTURES.get(about["machine"], about["machine"]),
        system=about["system"],
        # `status` is a list of pairs.
        containerd=any("io.containerd.snapshotter" in text for pair in about["status"] for text in pair),
        root=about["root"],
        free=min(free, default=None),
        images=tuple(_host_image(line) for line in lines if "layers" in line),
    )


def parse_image(line: str) -> HostImage:
    """Parse the line about an image that `commands.try_image` or `commands.show_image` prints. Raises BadAnswer."""
    return _host_image({"id": "", "layers": [], "tags": None, "labels": None, **object_or_empty(line)})


def platform(machine: str) -> str:
    """Docker's name for the platform of a Linux machine that the kernel calls `machine`, such as linux/amd64."""
    return f"linux/{_ARCHITECTURES.get(machine, machine)}"


def plan_push(image: Image, store: Store, base: str = "") -> PushPlan:
    """What to send of an image. `base`: the name of its base image, if that has another name.

    Raises DeployError if the image cannot run on this engine's kind of machine.
    """
    if (image.system, image.architecture) != (store.system, store.architecture):
        kind, base = f"{store.system}/{store.architecture}", base or image.tag
        raise DeployError(
            f"{base} is for {image.system}/{image.architecture}, but this host is {kind}", _build(base, kind)
        )
    if any(_same(image, on_host) for on_host in store.images):
        return PushPlan((), True, HAS_IT)
    shared = max((_common(image.layers, on_host.layers) for on_host in store.images), default=0)
    missing = image.layers[shared:]
    if not shared:
        return PushPlan(missing, False, "the host has none of its layers")
    return PushPlan(missing, False, f"the host has {shared} of {len(image.layers)} layers")


def _build(base: str, kind: str) -> str:
    if base.startswith("muster-trainer:"):
        return f"in Muster's checkout: DOCKER_DEFAULT_PLATFORM={kind} {make_image(base)}"
    return f"docker pull --platform {kind} {base}; or, if you build it: docker build --platform {kind}"


def is_based_on(base: Base, on_host: HostImage) -> bool:
    """Whether an image on a host is this base, or was made by a push from this base."""
    return on_host.layers == base.layers and on_host.mark in ("", run_image(base, base.name).mark)


def replaced(image: Image, store: Store) -> tuple[str, ...]:
    """The ids of images that earlier pushes made and that lose their name to `image`."""
    return tuple(
        on_host.id
        for on_host in store.images
        if on_host.mark not in ("", image.mark) and set(on_host.tags) <= {image.tag}
    )


def codec_for(store: Store) -> Codec:
    """How to compress an archive for this engine's `docker load`."""
    if not store.containerd:
        # 20.10 cannot read zstd. Later engines can, but in threads that may outlive their stream, which once ended an
        # engine (docs/decisions/0006).
        return GZIP
    version = tuple(int(number) for number in re.findall(r"[0-9]{1,9}", store.version)[:2])
    return ZSTD if version >= (25,) else PLAIN


def check_space(store: Store, sizes: Sequence[int]) -> None:
    """Raise DeployError if layers of these sizes do not fit, or if there is no room for a container.

    Layers need twice their size: the classic store unpacks them next to the archive, containerd keeps both blob and
    files.
    """
    what = "the image" if sizes else "a container"
    look = "muster clean" if store.version.startswith("bare-") else "docker system df"
    refuse_full(store.root, what, 2 * sum(sizes), store.free, f"see what you can remove there: {look}")


def _same(image: Image, on_host: HostImage) -> bool:
    return image.tag in on_host.tags and image.mark == on_host.mark and image.layers == on_host.layers


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _host_image(line: Mapping[str, Any]) -> HostImage:
    image = _IMAGE(line, "an image")
    labels, layers = image["labels"], tuple(image["layers"])
    ours = bool(layers) and labels.get(TOP) == layers[-1]
    return HostImage(image["id"], tuple(image["tags"]), layers, labels.get(MARK, "") if ours else "")
