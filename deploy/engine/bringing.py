"""Bring a host that has no engine one of its own, whose containers are processes of the login (bare/)."""

from __future__ import annotations

import hashlib
import io
import tarfile
from functools import cache
from pathlib import Path

from ..core import fields
from ..core.errors import DeployError
from ..core.scripts import Scripts
from ..door.session import Session

_SCRIPT, _FOLDER = Scripts(__file__), Path(__file__).with_name("bare")


def bring(session: Session) -> None:
    """Put it below ~/.muster/bin. Raises DeployError for a host without a Python that can run it."""
    digest, archive = _packed()
    done = session.run(_SCRIPT("bring-bare", digest), input=archive)
    if "python" not in fields.rows(done.out):
        raise DeployError(
            f"{session.host.name}: it has neither a container engine nor Python 3.11 or later",
            f"install one of them there; for an engine: muster bootstrap --hosts {session.host.name}",
        )


def is_current(version: str) -> bool:
    """Whether a host's own engine with this version is the one that `bring` would bring."""
    return version == f"bare-{_packed()[0]}"


@cache
def _packed() -> tuple[str, bytes]:
    """Its modules as an archive, and what names their content."""
    packed, digest = io.BytesIO(), hashlib.sha256()
    with tarfile.open(fileobj=packed, mode="w:gz") as archive:
        for path in sorted(_FOLDER.glob("*.py")):
            text = path.read_bytes()
            digest.update(f"{path.name} {len(text)}\n".encode() + text)
            entry = tarfile.TarInfo(f"bare/{path.name}")
            entry.size, entry.mode = len(text), 0o600
            archive.addfile(entry, io.BytesIO(text))
    return digest.hexdigest()[:32], packed.getvalue()
