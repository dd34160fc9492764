"""The input of `docker load`: a Docker and OCI archive as one compressed stream of known length. Pure.

Both image stores read it: the classic one through `manifest.json`, containerd's through `index.json`. These two files
come last: a stream that is cut short names no image, and leaves nothing behind. Layers that a host already has are
listed but left out.
"""

from __future__ import annotations

import tarfile
from collections.abc import Sequence

from ..road.cargo import Cargo, of_bytes
from .compression import Codec, CompressedLayer
from .model import Image, digest, docker_manifest, index, manifest

_BLOCK = 512
_LAYOUT = b'{"imageLayoutVersion":"1.0.0"}'


def archive(image: Image, layers: Sequence[CompressedLayer], sizes: dict[str, int], codec: Codec) -> Cargo:
    """The archive of `image` with `layers` inside, all compressed by `codec`.

    `sizes`: the bytes of the layers that are left out, if known: containerd needs them to save the image.
    """
    parts = []
    before = b""
    for layer in layers:
        parts += [of_bytes(codec.compress(before + _header(blob(layer.layer), layer.size))), layer.part]
        before = _padding(layer.size)
    known = {**sizes, **{layer.layer: layer.size for layer in layers}}
    parts.append(of_bytes(codec.compress(before + _names(image, known) + b"\0" * 2 * _BLOCK)))
    return Cargo(parts)


def blob(address: str) -> str:
    """The path in an archive of the content with this digest."""
    return "blobs/" + address.replace(":", "/")


def _names(image: Image, sizes: dict[str, int]) -> bytes:
    described = manifest(image, sizes)
    config_path = blob(digest(image.config))
    files = [
        (config_path, image.config),
        (blob(digest(described)), described),
        ("oci-layout", _LAYOUT),
        ("index.json", index(image, described)),
        ("manifest.json", docker_manifest(image, [blob(layer) for layer in image.layers], config_path)),
    ]
    return b"".join(_header(name, len(data)) + data + _padding(len(data)) for name, data in files)


def _header(name: str, size: int) -> bytes:
    entry = tarfile.TarInfo(name)
    entry.size = size
    # GNU's format can store sizes beyond 8 GiB; a layer with CUDA may be that large.
    return entry.tobuf(tarfile.GNU_FORMAT)


def _padding(size: int) -> bytes:
    return b"\0" * (-size % _BLOCK)
