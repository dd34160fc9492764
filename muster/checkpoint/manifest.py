"""The manifest of a checkpoint: the size and the hash of each of its files, with which store.py verifies them.

Format 1 has one file, `state.pt`. Format 2 has one file for each rank that holds a part of the state (shards.py); its
manifest is the same on all hosts, and each host has the files of its own ranks.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, NewerFormat
from ..files import is_number, parse, read

FORMAT = 2
# FIRST is the file of format 2 that has the rest of the state.
STATE, FIRST, MANIFEST = "state.pt", "shard-0.pt", "manifest.json"
ACCEPTED = (
    "give a step-XXXXXXXX folder that this trainer wrote; or a checkpoints folder or a run folder, whose newest "
    "usable checkpoint Muster takes"
)


@dataclass(frozen=True)
class File:
    """A file of a checkpoint; `host` is the host that wrote it, and empty in format 1."""

    sha256: str
    bytes: int
    host: str = ""


@dataclass(frozen=True)
class Manifest:
    """The facts about a checkpoint: `created` in unix seconds, and its files by name."""

    step: int
    created: float
    metric: float | None
    files: Mapping[str, File]
    summary: dict[str, Any]

    @property
    def sharded(self) -> bool:
        """Whether each rank has written a part of the state."""
        return self.files.keys() != {STATE}

    @property
    def bytes(self) -> int:
        """The size of all files together."""
        return sum(file.bytes for file in self.files.values())

    def render(self) -> str:
        """The text of the manifest file. Its last field is a checksum of all other fields."""
        facts: dict[str, Any] = {
            "format": FORMAT if self.sharded else 1,
            "step": self.step,
            "created": self.created,
            "metric": self.metric,
            "files": {
                name: {what: fact for what, fact in asdict(file).items() if fact != ""}
                for name, file in self.files.items()
            },
            "summary": self.summary,
        }
        facts["check"] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return json.dumps(facts, indent=1) + "\n"


def parse_manifest(text: str) -> Manifest:
    """Read the manifest in `text`. Raises ValueError, KeyError or TypeError if the text is not a manifest."""
    return _manifest_of(parse(text))


def _manifest_of(facts: Any) -> Manifest:
    files = {name: File(**file) for name, file in facts["files"].items()}
    if (FIRST not in files and files.keys() != {STATE}) or any(
        Path(name).name != name or name in ("", "..") for name in files
    ):
        raise ValueError("a checkpoint needs its state, in files that are next to its manifest")
    for file in files.values():
        if not (isinstance(file.sha256, str) and isinstance(file.host, str) and _is_whole(file.bytes)):
            raise ValueError("a file of a checkpoint needs a hash, a size and a host")
    manifest = Manifest(facts["step"], facts["created"], facts["metric"], files, facts["summary"])
    known = _is_whole(manifest.step) and is_number(manifest.created) and isinstance(manifest.summary, dict)
    if not known or not (manifest.metric is None or type(manifest.metric) in (int, float)):
        raise ValueError("a checkpoint needs a step, a time, a summary and perhaps a metric")
    return manifest


def _is_whole(value: object) -> bool:
    return type(value) is int and 0 <= value < 1 << 63


def read_manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint folder `path`. Raises CheckpointError if it is absent, altered, or too new."""
    if not path.is_dir():
        reason = "this is a plain file, not a checkpoint of this trainer" if path.exists() else "no such file or folder"
        raise CheckpointError(f"{path}: {reason}", ACCEPTED)
    try:
        text = read(path / MANIFEST)
        facts = parse(text)
        number = facts["format"]
        if not _is_whole(number):
            raise ValueError("a format must be a number")
        if number > FORMAT:
            raise NewerFormat(
                f"{path}: format {number}: a newer Muster wrote it, and this one only reads formats up to {FORMAT}",
                "continue with the Muster that wrote it, or update this one (with `make image` if it is in an image)",
            )
        manifest = _manifest_of(facts)
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no {MANIFEST} in it: not a checkpoint of this trainer", ACCEPTED) from error
    except OSError as error:
        raise CheckpointError(f"{path}: {MANIFEST} cannot be read: {error.strerror}", ACCEPTED) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CheckpointError(f"{path}: {MANIFEST} is damaged, or another trainer wrote it", ACCEPTED) from error
    if manifest.render() != text:
        raise CheckpointError(f"{path}: {MANIFEST} was altered: its checksum does not match", ACCEPTED)
    return manifest


def manifest_or_none(path: Path) -> Manifest | None:
    """The manifest of the folder `path`, or None if it is missing or not valid."""
    with suppress(CheckpointError):
        return read_manifest(path)
    return None
