"""The manifest of a checkpoint: the size and the hash of its state, with which store.py verifies the state."""

from __future__ import annotations

import hashlib
import json
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..errors import CheckpointError, NewerFormat

FORMAT = 1
STATE, MANIFEST = "state.pt", "manifest.json"
ACCEPTED = (
    "give a step-XXXXXXXX folder that this trainer wrote; or a checkpoints folder or a run folder, whose newest "
    "usable checkpoint Muster takes"
)


@dataclass(frozen=True)
class Manifest:
    """The facts of a checkpoint: `created` in unix seconds, `sha256` and `bytes` of `state.pt`."""

    step: int
    created: float
    metric: float | None
    sha256: str
    bytes: int
    summary: dict[str, Any]

    def render(self) -> str:
        """The text of the manifest's file. Its last field is a checksum of all others."""
        facts: dict[str, Any] = {
            "format": FORMAT,
            "step": self.step,
            "created": self.created,
            "metric": self.metric,
            "files": {STATE: {"sha256": self.sha256, "bytes": self.bytes}},
            "summary": self.summary,
        }
        facts["check"] = hashlib.sha256(json.dumps(facts).encode()).hexdigest()
        return json.dumps(facts, indent=1) + "\n"


def read_manifest(path: Path) -> Manifest:
    """The manifest of the checkpoint folder `path`. Raises CheckpointError if it is absent, altered, or too new."""
    if not path.is_dir():
        reason = "a plain file, not a checkpoint of this trainer" if path.exists() else "no such file or folder"
        raise CheckpointError(f"{path}: {reason}", ACCEPTED)
    try:
        text = (path / MANIFEST).read_text("utf-8")
        facts = json.loads(text)
        if int(facts["format"]) > FORMAT:
            raise NewerFormat(
                f"{path}: format {facts['format']}: a newer Muster wrote it, and this one reads up to format {FORMAT}",
                "continue with the Muster that wrote it, or update this one (with `make image` if it is in an image)",
            )
        state = facts["files"][STATE]
        manifest = Manifest(
            facts["step"], facts["created"], facts["metric"], state["sha256"], state["bytes"], facts["summary"]
        )
    except FileNotFoundError as error:
        raise CheckpointError(f"{path}: no {MANIFEST} in it: not a checkpoint of this trainer", ACCEPTED) from error
    except OSError as error:
        raise CheckpointError(f"{path}: {MANIFEST} cannot be read: {error.strerror}", ACCEPTED) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path}: {MANIFEST} is damaged or not of this trainer", ACCEPTED) from error
    if manifest.render() != text:
        raise CheckpointError(f"{path}: {MANIFEST} was altered: its checksum does not match", ACCEPTED)
    return manifest


def manifest_or_none(path: Path) -> Manifest | None:
    """The manifest of the folder `path`, or None if it has no good one."""
    with suppress(CheckpointError):
        return read_manifest(path)
    return None
