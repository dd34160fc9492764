"""Lists what a release depends on, as a CycloneDX SBOM, from the locks in requirements/."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

HOME = Path(__file__).resolve().parents[1]
LOCKS = HOME / "requirements"
# The locks of what an installation contains; other locks are for the tools of a checkout, with the scope `excluded`.
SHIPPED = ("control", "trainer", "torch", "uv")
_PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)")
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")


def read_lock(text: str) -> Iterator[tuple[str, str, list[str]]]:
    """Yield the name, version and hashes of each pin of a lock."""
    name, version, hashes = "", "", list[str]()
    for line in text.splitlines():
        if found := _PIN.match(line):
            if name:
                yield name, version, hashes
            name, version, hashes = found[1].lower().replace("_", "-"), found[2], []
        hashes += _HASH.findall(line)
    if name:
        yield name, version, hashes


def list_parts(moment: int) -> str:
    """Return the SBOM as JSON. `moment`: the release's time, so that two builds have the same bytes."""
    parts: dict[str, dict[str, object]] = {}
    for lock in sorted(LOCKS.glob("*.txt"), key=lambda lock: (lock.stem not in SHIPPED, lock.name)):
        for name, version, hashes in read_lock(lock.read_text()):
            address = f"pkg:pypi/{name}@{version}"
            part = {"type": "library", "bom-ref": address, "name": name, "version": version, "purl": address}
            part["scope"] = "required" if lock.stem in SHIPPED else "excluded"
            # A lock has the hash of each file of a version; any one of them may be installed.
            files = [{"name": "sha256", "value": each} for each in sorted(hashes)]
            parts.setdefault(address, {**part, "properties": files})
    version = tomllib.loads((HOME / "pyproject.toml").read_text())["project"]["version"]
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": datetime.fromtimestamp(moment, UTC).isoformat(),
            "component": {"type": "application", "name": "muster-train", "version": version, "bom-ref": "muster-train"},
        },
        "components": [parts[address] for address in sorted(parts)],
    }
    return json.dumps(document, indent=1) + "\n"
