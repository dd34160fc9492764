"""What of an image a host lacks, and what to send it: from what its engine says to a decision with its reason. Pure.

The rules of `docker load` behind this are measured in docs/decisions/: a layer may be left out when the host has it
together with every layer below it, on both image stores.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from ..core.errors import DeployError
from ..core.fields import array, default, digits, record, table, text, words
from ..core.text import amount
from ..host.facts import json_object
from .compression import GZIP, PLAIN, ZSTD, Codec
from .model import DIGEST, MARK, TOP, Base, Image, run_image

# An engine names its machine as the kernel does, an image as Go does.
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64", "armv7l": "arm", "i686": "386"}
_KILOBYTES = digits(0, 1 << 50)
_ABOUT = record(
    {
        "version": text(100),
        "machine": text(100),
        "system": text(100),
        "status": default(array(array(text(), 10), 1000), []),
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
_SLACK = 64 << 20  # bytes that shall stay free on a host's disk


@dataclass(frozen=True)
class Held:
    """An image on a host. `mark` is empty unless it is one that a push made."""

    id: str
    tags: tuple[str, ...]
    layers: tuple[str, ...]
    mark: str


@dataclass(frozen=True)
class Store:
    """A host's engine as `commands.look_at_images` shows it; `free` is bytes on its disk, None when it did not say."""

    version: str
    architecture: str
    system: str
    containerd: bool
    root: str
    free: int | None
    images: tuple[Held, ...]


@dataclass(frozen=True)
class Sending:
    """What to send to one host: `layers` by diff id, bottom up. `there`: it has the image, send nothing."""

    layers: tuple[str, ...]
    there: bool
    why: str


def parse_store(output: str) -> Store:
    """Read the JSON lines of `commands.look_at_images`; anything else on a line is passed over.

    Raises DeployError when the engine's own line is missing, BadAnswer for a field that cannot be read.
    """
    lines = [json_object(line) for line in output.split("\n")]
    engine = next((line for line in lines if line.get("version")), None)
    if not engine:
        raise DeployError("the Docker engine did not say what it is", "log in there and try: docker info")
    about = _ABOUT(engine, "")
    free = [_KILOBYTES(line["free"], "free") * 1024 for line in lines if line.get("free")]
    return Store(
        version=about["version"],
        architecture=_ARCHITECTURES.get(about["machine"], about["machine"]),
        system=about["system"],
        # A list of pairs.
        containerd=any("io.containerd.snapshotter" in text for pair in about["status"] for text in pair),
        root=about["root"],
        free=min(free, default=None),
        images=tuple(_held(line) for line in lines if "layers" in line),
    )


def parse_image(line: str) -> Held:
    """Read the line that `commands.try_image` and `commands.show_image` show of an image. Raises BadAnswer."""
    return _held({"id": "", "layers": [], "tags": None, "labels": None, **json_object(line)})


def plan_push(image: Image, store: Store) -> Sending:
    """What to send. Raises DeployError when the image cannot run on this engine's kind of machine."""
    if (image.system, image.architecture) != (store.system, store.architecture):
        kind = f"{store.system}/{store.architecture}"
        raise DeployError(
            f"{image.tag} is for {image.system}/{image.architecture}, but this host is {kind}",
            "name an image of the host's kind for it",
        )
    if any(_same(image, held) for held in store.images):
        return Sending((), True, "already there")
    shared = max((_common(image.layers, held.layers) for held in store.images), default=0)
    missing = image.layers[shared:]
    if not shared:
        return Sending(missing, False, "no layer of it is there")
    return Sending(missing, False, f"{shared} of {len(image.layers)} layers are there")


def stands_on(base: Base, held: Held) -> bool:
    """Whether an image on a host is this base, or what a push makes of it and some folder."""
    if not held.mark:
        return held.layers == base.layers
    code = next(iter(held.layers[len(base.layers) :]), None)
    return run_image(base, code, base.name).mark == held.mark


def everything(image: Image, why: str) -> Sending:
    """The whole image, whatever the host has."""
    return Sending(image.layers, False, why)


def replaced(image: Image, store: Store) -> tuple[str, ...]:
    """Ids of images that pushes made and that have no name once `image` has its own."""
    return tuple(
        held.id for held in store.images if held.mark not in ("", image.mark) and set(held.tags) <= {image.tag}
    )


def codec_for(store: Store) -> Codec:
    """How to compress what this engine's `docker load` shall read."""
    if not store.containerd:
        # 20.10 reads no zstd here. Later ones do, in threads that may outlive their stream: that ended an engine once
        # (docs/decisions/0006).
        return GZIP
    version = tuple(int(number) for number in re.findall(r"[0-9]{1,9}", store.version)[:2])
    return ZSTD if version >= (25,) else PLAIN


def check_space(store: Store, sizes: Sequence[int]) -> None:
    """Raise DeployError when layers of these bytes will not fit.

    Twice their size: the classic store unpacks the archive beside the layers, containerd's keeps both blob and files.
    """
    need = 2 * sum(sizes) + _SLACK
    if store.free is not None and store.free < need:
        raise DeployError(
            f"not enough disk space in {store.root}: the image needs {amount(need)}, {amount(store.free)} are free",
            "see what could go there: docker system df",
        )


def _same(image: Image, held: Held) -> bool:
    return image.tag in held.tags and image.mark == held.mark and image.layers == held.layers


def _common(first: Sequence[str], second: Sequence[str]) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False)))


def _held(line: Mapping[str, Any]) -> Held:
    image = _IMAGE(line, "an image")
    labels, layers = image["labels"], tuple(image["layers"])
    ours = bool(layers) and labels.get(TOP) == layers[-1]
    return Held(image["id"], tuple(image["tags"]), layers, labels.get(MARK, "") if ours else "")
