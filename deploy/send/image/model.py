"""Images as values: a base, and a run's image, which is that base with Muster's settings. Pure.

The image configuration is written here, from what `docker image inspect` reports about the base. The same base gives
the same bytes on every machine. What a run works with is not in the image but mounted: the user's folder and, if the
image lacks it, Muster's agent.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...core.errors import UsageError
from ...core.fields import array, default, document, either, nothing, record, table, text, tree, whole
from ...run.environment import TRAINER_HOME
from ..folder.content import CODE

# The version of the contract with the trainer: contract.md. The Dockerfile labels the image with it.
CONTRACT, CONTRACT_LABEL = 7, "muster.contract"
MARK, BASE, TOP = "muster.image", "muster.base", "muster.top"
# How the name of an environment on hosts without an engine begins (hosts/node/bare.py). It is its run's image itself.
BARE = "muster-bare:"
# The fields of the OCI image configuration and of Docker (Healthcheck, OnBuild, Shell). `inspect` shows more fields,
# and different ones in each engine version: with those, one image would become several.
_SETTINGS = (
    *("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "Volumes", "WorkingDir"),
    *("Labels", "StopSignal", "Healthcheck", "OnBuild", "Shell"),
)
DIGEST = text(71, r"sha256:[0-9a-f]{64}")
_CONFIG = record(
    {},
    {
        **dict.fromkeys(_SETTINGS, tree()),
        "Labels": either(nothing, table(text(1000), text(1 << 16), 10_000)),
        "Env": either(nothing, array(text(1 << 16), 10_000)),
    },
)
_INSPECTED = record(
    {
        "Architecture": text(100),
        "Os": text(100),
        "RootFS": record({}, {"Layers": default(array(DIGEST), [])}),
    },
    {
        "Config": either(nothing, _CONFIG),
        "Created": default(text(64), ""),
        "Size": whole(),
        "RepoDigests": default(array(text(500), 10_000), []),
    },
)
_TAG = re.compile(r"[a-z0-9]+([._-]+[a-z0-9]+)*(:[0-9]+)?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*(:\w[\w.-]{0,127})?", re.ASCII)


@dataclass(frozen=True)
class Base:
    """A base image by its content: `layers` are diff ids (`sha256:...`) from the bottom up, `size` is in bytes.

    `sources`: references by digest with which a registry may have it.
    """

    name: str
    architecture: str
    system: str
    created: str
    settings: Mapping[str, Any]
    layers: tuple[str, ...]
    size: int
    sources: tuple[str, ...]

    @property
    def content(self) -> tuple[object, ...]:
        """What a container of it is made of. If it is the same on two hosts, it does not matter whose base is used."""
        return self.layers, self.settings, self.architecture, self.system


@dataclass(frozen=True)
class Image:
    """The image of a run: its name, its configuration as bytes, and the mark that identifies it on a host.

    `mark` is a digest of the configuration, which carries it as the label `muster.image`. An image's id cannot serve
    for this: it is the digest of the configuration in one image store, and of the manifest in the other.
    """

    tag: str
    config: bytes
    layers: tuple[str, ...]
    mark: str
    architecture: str
    system: str


def has_trainer(base: Base) -> bool:
    """Whether the image was made from one of Muster's own: it has the trainer, and Python finds it."""
    return TRAINER_HOME in _variables(base).get("PYTHONPATH", "").split(":")


def refuse_other_trainer(base: Base) -> None:
    """Raise UsageError if the trainer in the image belongs to another Muster, with another contract version.

    A node with it would end with only exit code 1, or misread its settings.
    """
    spoken = base.settings.get("Labels", {}).get(CONTRACT_LABEL, "0")
    if not has_trainer(base) or spoken == str(CONTRACT):
        return
    ours = base.name.startswith("muster-trainer:")
    raise UsageError(
        f"{base.name}: its trainer belongs to another Muster (contract {spoken}, this Muster has {CONTRACT})",
        f"in Muster's checkout: {make_image(base.name)}"
        + ("" if ours else "; then build this image again from that one"),
    )


def make_image(name: str) -> str:
    """The command that builds one of Muster's own images, to be run in its checkout."""
    return f"make image{' TARGET=gpu' if name.endswith(':gpu') else ''}"


def digest(data: bytes) -> str:
    """SHA-256 as Docker writes it."""
    return "sha256:" + hashlib.sha256(data).hexdigest()


def base_of(name: str, inspected: object) -> Base:
    """An image from its entry in `docker image inspect`. Raises BadAnswer."""
    image = _INSPECTED(inspected, "")
    settings = image.get("Config") or {}
    return Base(
        name=name,
        architecture=image["Architecture"],
        system=image["Os"],
        created=image.get("Created") or "1980-01-01T00:00:00Z",
        settings={key: settings[key] for key in _SETTINGS if settings.get(key)},
        layers=tuple(image["RootFS"].get("Layers") or ()),
        size=image.get("Size", 0),
        sources=tuple(image.get("RepoDigests") or ()),
    )


def parse_base(name: str, output: str) -> Base:
    """An image from the output of `docker image inspect`. Raises BadAnswer."""
    value = document(output, "docker image inspect")
    return base_of(name, value[0] if isinstance(value, list) and value else value)


def run_image(base: Base, tag: str) -> Image:
    """The image of a run, named `tag`.

    In an image that is not Muster's, Python is told where the trainer will be, and the user that it runs as gets a home
    and a name: without them, torch and other libraries find no place for their caches. Raises UsageError if `tag` is
    not an image name.
    """
    if base.name.startswith(BARE):
        return Image(base.name, b"", base.layers, "".join(base.layers), base.architecture, base.system)
    tag = full_name(tag).removeprefix("docker.io/").removeprefix("library/")
    # The label has the top layer, because images that a user builds from this one inherit the labels.
    top = base.layers[-1] if base.layers else ""
    labels = {**base.settings.get("Labels", {}), BASE: base.name, TOP: top}
    settings = {**base.settings, "Labels": labels}
    if not has_trainer(base):
        settings["Env"] = at_home(_variables(base))
    # `inspect` does not show the base's history, and some builders refuse a history that does not match the layers.
    history = [f"layer {number} of {base.name}" for number in range(1, len(base.layers) + 1)]
    config: dict[str, Any] = {
        "architecture": base.architecture,
        "os": base.system,
        "created": base.created,
        "config": settings,
        "rootfs": {"type": "layers", "diff_ids": list(base.layers)},
        "history": [{"created": base.created, "created_by": entry} for entry in history],
    }
    labels[MARK] = digest(_json(config))
    return Image(tag, _json(config), base.layers, labels[MARK], base.architecture, base.system)


def manifest(image: Image, sizes: Mapping[str, int]) -> bytes:
    """The OCI manifest. `sizes`: the bytes of the layers' tar files; it may lack a layer that is not sent."""
    layers = [
        {"mediaType": "application/vnd.oci.image.layer.v1.tar", "digest": layer, "size": sizes.get(layer, 0)}
        for layer in image.layers
    ]
    config = {"mediaType": "application/vnd.oci.image.config.v1+json", **_address(image.config)}
    kind = "application/vnd.oci.image.manifest.v1+json"
    return _json({"schemaVersion": 2, "mediaType": kind, "config": config, "layers": layers})


def index(image: Image, manifest: bytes) -> bytes:
    """The OCI index that refers to the image, for the containerd image store."""
    name = full_name(image.tag)
    entry = {
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        **_address(manifest),
        "annotations": {"io.containerd.image.name": name, "org.opencontainers.image.ref.name": name.rsplit(":", 1)[1]},
    }
    kind = "application/vnd.oci.image.index.v1+json"
    return _json({"schemaVersion": 2, "mediaType": kind, "manifests": [entry]})


def docker_manifest(image: Image, paths: Sequence[str], config_path: str) -> bytes:
    """`manifest.json`, for the classic image store. `paths`: the files of all layers, whether they are sent or not."""
    return _json([{"Config": config_path, "RepoTags": [image.tag], "Layers": list(paths)}])


def full_name(tag: str) -> str:
    """`name` as engines write it: `docker.io/library/name:latest`. Raises UsageError if it is not an image name."""
    if not _TAG.fullmatch(tag):
        raise UsageError(f"not an image name: {tag!r}", "lower-case letters, digits, . _ - and /, then :tag")
    name = tag if ":" in tag.rsplit("/", 1)[-1] else f"{tag}:latest"
    first, slash, _ = name.partition("/")
    if not slash:
        return f"docker.io/library/{name}"
    return name if "." in first or ":" in first or first == "localhost" else f"docker.io/{name}"


def _variables(base: Base) -> dict[str, str]:
    return dict(line.partition("=")[::2] for line in base.settings.get("Env") or ())


def at_home(variables: Mapping[str, str]) -> list[str]:
    """The variables of an image that is not Muster's, with what the agent and torch need, as lines NAME=VALUE."""
    path = ":".join(filter(None, (CODE, variables.get("PYTHONPATH", ""))))
    complete = {"HOME": "/tmp", "USER": "muster", **variables, "PYTHONPATH": path}
    return [f"{name}={value}" for name, value in complete.items()]


def _address(data: bytes) -> dict[str, Any]:
    return {"digest": digest(data), "size": len(data)}


def _json(value: Any) -> bytes:
    return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()


def slug(text: str) -> str:
    """The text as a valid image name: `My Folder` becomes `my-folder`."""
    name = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in text.lower()).strip("-")
    # An image name may have at most 255 characters.
    return "-".join(filter(None, name.split("-")))[:100].strip("-") or "run"


def tag_of(base: str, folder: Path | None) -> str:
    """The name of a run's image on the hosts."""
    if base.startswith(BARE):
        return base
    return f"muster-{slug(folder.resolve().name if folder else base)}:latest"
